"""What a run reports: metrics, rollouts, progress, timelines."""
