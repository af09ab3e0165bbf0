"""Several pools in one launch: each a world of its own that runs its own program over all steps.

Whole batches cross between pools through channels, weights through registers
(`rpeg.runtime.publish`), and everything that the run's books need through the home pool's desk.
"""
