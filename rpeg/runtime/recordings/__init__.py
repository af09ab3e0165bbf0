"""Recordings of runs, and runs that replay them."""
