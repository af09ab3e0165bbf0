"""What a run keeps on disk to go on from: checkpoints, ledger."""
