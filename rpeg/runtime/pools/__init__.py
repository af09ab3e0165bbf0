"""Several pools of processes in one world: what crosses between them, and when it may."""
