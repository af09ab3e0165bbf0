"""The folder of a run, and the data sets that it reads, as far as that needs no torch: the tools
look into them before they start anything, the runtime lives with them.
"""
