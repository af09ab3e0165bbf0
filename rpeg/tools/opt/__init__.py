"""What `rpeg-opt` does, part by part: chunks, expected messages, passes, targets, output."""
