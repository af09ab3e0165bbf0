"""How a batch is cut and laid out: minibatches, micro-batches, packed sequences."""
