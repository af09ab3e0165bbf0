"""What each stage of a placed step costs by itself: seconds, their causes, FLOPs, bytes, memory."""
