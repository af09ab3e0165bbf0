"""`rpeg verify` as a library: harden a pipeline, record it, replay it under layouts, compare.

`run.verify` does it all; `harden`, `record`, `replay`, `judge` and `show` are its parts.
"""
