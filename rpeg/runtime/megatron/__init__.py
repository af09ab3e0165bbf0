"""Megatron-Core as the training backend: models, weights, layouts. Imported lazily: it costs
seconds.

`shim` makes it run on hosts without a GPU; everything else is the same on both.
"""
