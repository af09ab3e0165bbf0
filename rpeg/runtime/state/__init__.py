"""What a run keeps on disk to go on from: its folder, checkpoints, ledger."""
