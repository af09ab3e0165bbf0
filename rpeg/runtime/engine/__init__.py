"""Engines: they generate from the weights that they were last given."""
