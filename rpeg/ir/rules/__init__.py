"""What the verifier holds a module to: rules by subject, their codes, and a page each.

`verify` asks them all; `codes` is the list that violations are held to; tools read the pages.
"""
