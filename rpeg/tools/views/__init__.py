"""The graph of a step for other readers than compilers: drawings, records, a summary."""
