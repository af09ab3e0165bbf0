"""Arithmetic that models and engines share, fast on CPUs too."""
