"""Which process holds which part of which tensor, and how parts move. Imports neither torch nor the
rest of rpeg.
"""
