"""The graph of a step for people and other tools: drawings, records, a summary."""
