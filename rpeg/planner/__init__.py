"""The choice of a plan: so far, how many processes share a data-parallel layout."""
