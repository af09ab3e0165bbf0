"""The commands, with what only they need: predictions for a cluster, reports, calibration, and the
verification of layouts.
"""
