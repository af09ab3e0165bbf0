"""The RLM Pipeline Execution Graph: dialects, types, attributes, verifiers, diagnostics.

Four levels live in one module: L0 `rpeg` (the algorithm), L1 (`rpeg` with plan attributes and
movement), L2 `rsched` (orders on resources), L3 `rrt` (one program for each process group).
"""
