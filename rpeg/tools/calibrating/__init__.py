"""Micro-benchmarks of this machine, and the cluster file that they make.

`measure` starts `ranks`, one process per GPU or core, which time kernels and collectives all at
once, as training does; `fit` turns times into rates; `describe` writes them as a cluster file.
"""
