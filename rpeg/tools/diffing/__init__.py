"""`rpeg diff`: what a module says, as items with fields; what changed between two of them."""
