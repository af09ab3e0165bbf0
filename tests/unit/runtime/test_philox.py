"""Philox against the published known answers, and the noise made of it."""

from __future__ import annotations

import pytest
import torch

from rpeg.runtime.engine.philox import gumbel, philox

ONES = 0xFFFFFFFF
# Known answers that come with Random123 (Salmon et al.): philox4x32, 10 rounds.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((ONES,) * 4, (ONES,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(
    counter: tuple[int, int, int, int], key: tuple[int, int], words: str
) -> None:
    c = [torch.tensor([word]) for word in counter]
    got = philox((c[0], c[1], c[2], c[3]), key)
    assert " ".join(f"{int(word):08x}" for word in got) == words


def test_noise_depends_on_its_coordinates_only() -> None:
    ordinals, samples = torch.tensor([7, 7, 9]), torch.tensor([0, 1, 0])
    whole = gumbel(ordinals, samples, range(0, 5), 10, run_seed=3, seed=1)
    assert whole.shape == (3, 5, 10)
    later = gumbel(ordinals[1:], samples[1:], range(2, 4), 7, run_seed=3, seed=1)
    assert torch.equal(later, whole[1:, 2:4, :7])
    others = [
        gumbel(ordinals + 1, samples, range(0, 5), 10, run_seed=3, seed=1),
        gumbel(ordinals, samples + 1, range(0, 5), 10, run_seed=3, seed=1),
        gumbel(ordinals, samples, range(0, 5), 10, run_seed=4, seed=1),
        gumbel(ordinals, samples, range(0, 5), 10, run_seed=3, seed=2),
    ]
    assert not any(bool((other == whole).any()) for other in others)


def test_noise_is_standard_gumbel() -> None:
    noise = gumbel(torch.arange(64), torch.zeros(64).long(), range(0, 32), 64, run_seed=0, seed=0)
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.01)
    assert float(noise.var()) == pytest.approx(torch.pi**2 / 6, abs=0.03)
    assert bool(noise.isfinite().all())
