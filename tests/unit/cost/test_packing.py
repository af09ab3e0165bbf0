"""How often a pass reads a prompt: what the model says against what the runtime packs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rpeg.cost.lengths import Lengths
from rpeg.cost.profiles.layouts import Bound
from rpeg.cost.profiles.workload import Rows
from rpeg.runtime.batches.batching import microbatches
from rpeg.runtime.batches.batching import minibatches as minibatched
from rpeg.runtime.layout import MicroBatch


@pytest.mark.parametrize("minibatches", [1, 4, 8])
@pytest.mark.parametrize("most", [4, 8, 16])
def test_prompts_are_packed_as_often_as_the_runtime_does(minibatches: int, most: int) -> None:
    """Of 32 groups of 8 samples, each training in a minibatch of its own or not."""
    number, group = 256, 8
    draw = np.random.default_rng(0)
    read = []
    for step in range(20):
        lengths = torch.tensor(draw.integers(20, 200, number))
        for rows in minibatched([number], 0, minibatches, shuffle=True, seeds=[step]):
            parts = microbatches(rows, lengths, MicroBatch(seqs=most))
            read.append(sum(len({row // group for row in part}) for part in parts))
    rows = Rows(number, Lengths(1.0, 1.0, 0.0), Lengths(1.0, 1.0, 0.0), group)
    one = rows.share(number / minibatches)
    found = one.packed_in(Bound(in_rows=most).parts(one, 1))
    assert found == pytest.approx(np.mean(read), rel=0.08)
