"""Traces in Perfetto's format, predicted and measured: read, and compared stage by stage."""
