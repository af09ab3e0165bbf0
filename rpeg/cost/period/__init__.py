"""From the tasks of a step to its period: the task graph, its cycles, and the bounds on both."""
