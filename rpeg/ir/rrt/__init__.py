"""The `rrt` dialect (L3): programs, made of calls of the runtime."""
