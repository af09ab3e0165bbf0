"""Who holds which part of which tensor, and how parts move: nothing of torch, nothing of ours."""
