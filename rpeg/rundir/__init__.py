"""The folder of a run, as far as it can be read and written without torch: the tools look into it
before they start anything, the runtime lives in it.
"""
