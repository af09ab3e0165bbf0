"""MLIR's text form, and where in a text things stand."""
