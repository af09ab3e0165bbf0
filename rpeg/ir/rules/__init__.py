"""The rules of the verifier: their codes, and a page each.

`codes` is all that the verifier itself needs; tools read the pages.
"""
