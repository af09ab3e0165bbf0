"""Weights from the processes that train a model to those that sample from it: what goes where, in
which buckets, over which group, and which of the versions that arrived is used.
"""
