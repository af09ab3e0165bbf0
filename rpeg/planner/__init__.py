"""The choice of a plan. So far one choice is made: how many processes share a data-parallel layout."""
