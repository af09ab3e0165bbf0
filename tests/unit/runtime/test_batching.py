"""Minibatches that no layout changes, micro-batches within bounds, and the rectangles of both."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rpeg.runtime.batches.batching import balanced, microbatches, minibatches
from rpeg.runtime.batches.examples import Examples
from rpeg.runtime.errors import LayoutFailure
from rpeg.runtime.layout import MicroBatch


@given(
    shares=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    count=st.integers(1, 4),
    shuffle=st.booleans(),
    seed=st.integers(0, 5),
)
def test_every_width_trains_the_same_minibatches(
    shares: list[int], count: int, shuffle: bool, seed: int
) -> None:
    total = sum(shares)
    if count > total:
        with pytest.raises(LayoutFailure, match="lower `minibatches`"):
            minibatches(shares, 0, count, shuffle=shuffle, seeds=[seed])
        return
    whole = minibatches([total], 0, count, shuffle=shuffle, seeds=[seed])
    offset, parts = 0, [[] for _ in range(count)]  # type: ignore[var-annotated]
    for mine, share in enumerate(shares):
        local = minibatches(shares, mine, count, shuffle=shuffle, seeds=[seed])
        for part, rows in zip(parts, local, strict=True):
            part += [int(row) + offset for row in rows]
        offset += share
    assert [sorted(part) for part in parts] == [sorted(rows.tolist()) for rows in whole]
    assert sorted(row for part in parts for row in part) == list(range(total))


def test_shuffles_differ_by_seed_and_are_repeated() -> None:
    def order(*seeds: int) -> list[int]:
        return minibatches([32], 0, 1, shuffle=True, seeds=seeds)[0].tolist()

    assert order(0, 1) == order(0, 1) != order(0, 2)
    assert minibatches([4], 0, 2, shuffle=False, seeds=[])[1].tolist() == [2, 3]


def split(sizes: list[int], bound: MicroBatch, rounds: int = 1) -> list[list[int]]:
    return microbatches(torch.arange(len(sizes)), torch.tensor(sizes), bound, rounds)


def test_microbatches_are_balanced_within_their_bound() -> None:
    lengths = torch.tensor([5, 9, 2, 2, 7, 30])
    rows = torch.tensor([0, 1, 2, 3, 5])
    assert microbatches(rows, lengths, MicroBatch(tokens=18)) == [[5], [0, 1, 2, 3]]
    assert microbatches(rows, lengths, MicroBatch(tokens=18, seqs=2)) == [[5], [1, 3], [0, 2]]
    assert microbatches(rows, lengths, MicroBatch()) == [[0, 1, 2, 3, 5]]


def test_rounds_are_filled_with_idle_microbatches() -> None:
    assert split([4, 4, 4], MicroBatch(), rounds=2) == [[0, 2], [1]]
    assert split([4], MicroBatch(), rounds=2) == [[0], []]
    assert split([], MicroBatch(tokens=8), rounds=4) == [[], [], [], []]
    assert split([], MicroBatch()) == [[]]


SIZES = st.lists(st.integers(1, 40), max_size=40)
ONE_IN = st.none() | st.integers(1, 60)


@given(SIZES, ONE_IN, ONE_IN, st.integers(1, 4))
def test_every_row_is_once_in_a_microbatch_within_the_bound(
    sizes: list[int], tokens: int | None, seqs: int | None, rounds: int
) -> None:
    parts = split(sizes, MicroBatch(tokens, seqs), rounds)
    assert sorted(row for part in parts for row in part) == list(range(len(sizes)))
    assert len(parts) % rounds == 0
    assert parts == split(sizes, MicroBatch(tokens, seqs), rounds)
    for part in parts:
        assert seqs is None or len(part) <= seqs
        assert tokens is None or len(part) <= 1 or sum(sizes[row] for row in part) <= tokens


@given(SIZES.filter(bool), st.integers(1, 200))
def test_microbatches_are_few_and_alike(sizes: list[int], tokens: int) -> None:
    parts = split(sizes, MicroBatch(tokens=tokens))
    loads = [sum(sizes[row] for row in part) for part in parts]
    assert loads == sorted(loads, reverse=True)
    assert loads[0] - loads[-1] <= max(sizes)
    # Of two that are next to each other in size, at most one is half empty, unless rows are long.
    assert len(parts) <= 1 + 2 * sum(min(size, tokens) for size in sizes) / tokens


@given(SIZES.filter(bool), st.integers(1, 12))
def test_the_largest_part_is_at_most_four_thirds_of_the_best(sizes: list[int], n: int) -> None:
    numbered = dict(enumerate(sizes))
    largest = max(sum(numbered[row] for row in part) for part in balanced(numbered, n))
    longest = sorted(sizes, reverse=True)
    best = max(
        -(-sum(sizes) // n), longest[0], sum(longest[n - 1 : n + 1]) if len(sizes) > n else 0
    )
    assert largest <= best * 4 / 3 + 1 or largest - best < longest[0]


def test_rows_are_packed_and_each_token_predicted_from_the_one_before() -> None:
    prompts = ((4,), (5, 6, 7))
    tokens = torch.tensor([[8, 9, 1], [8, 0, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]]).bool()
    examples = Examples(prompts, tokens, mask, 1.0)
    inputs = examples.inputs([0, 1], multiple=4)
    assert inputs.input_ids.tolist() == [[4, 8, 9, 5, 6, 7, 0, 0]]
    assert inputs.packing.places.tolist() == [0, 1, 2, 0, 1, 2, 3, 4]
    assert inputs.predicting.tolist() == [0, 1, 2, 5]
    assert inputs.targets.tolist() == [8, 9, 1, 8]
    assert inputs.rectangle(inputs.targets).tolist() == tokens.tolist()
    assert examples.inputs([1]).mask.tolist() == [[True]]


def test_tokens_before_the_last_trained_one_are_read_even_if_masked() -> None:
    mask = torch.tensor([[1, 0, 1, 0]]).bool()
    examples = Examples(((4,),), torch.tensor([[5, 6, 7, 8]]), mask, 1.0)
    inputs = examples.inputs([0])
    assert inputs.input_ids.tolist() == [[4, 5, 6]]
    assert inputs.mask.tolist() == [[True, False, True]]


def test_equal_prompts_are_read_once() -> None:
    tokens = torch.tensor([[8, 9], [7, 6], [5, 0]])
    mask = torch.tensor([[1, 1], [1, 1], [1, 0]]).bool()
    inputs = Examples(((3, 4), (2,), (3, 4)), tokens, mask, 1.0).inputs([0, 1, 2])
    assert inputs.input_ids.tolist() == [[3, 4, 8, 2, 7]]
    assert inputs.predicting.tolist() == [1, 2, 3, 4, 1]
    assert inputs.rectangle(inputs.targets).tolist() == tokens.tolist()
