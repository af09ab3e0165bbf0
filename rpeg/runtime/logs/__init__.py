"""What a run tells people: metrics, rollouts, progress, timelines."""
