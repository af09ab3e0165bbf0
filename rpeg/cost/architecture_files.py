"""Architectures from files: `architectures/*.toml`, or any Hugging Face model's config.json."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from rpeg.cost.architecture import Architecture, Experts, Latent, StateSpace
from rpeg.cost.hugging_face import from_hugging_face
from rpeg.ir.figures import AT_LEAST_0, TOP, FigureError, Figures, up_to
from rpeg.ir.near import near
from rpeg.resources import resource

KEYS = {
    TOP: (
        *("name", "source", "aliases", "layers", "hidden", "ffn", "heads", "kv_heads"),
        *(
            "head_width",
            "vocabulary",
            "positions",
            "gated",
            "tied",
            "sinks",
            "window",
            "full_every",
        ),
    ),
    "experts": ("number", "per_token", "ffn", "shared_ffn", "dense_layers", "every", "latent"),
    "state_space": (
        *("layers", "attention", "mlps", "heads", "head_width", "state_width", "groups", "chunk"),
    ),
    "latent": ("q_rank", "kv_rank", "nope_width", "rope_width", "value_width"),
}
"""Keys by section. The whole file has one source; its numbers are plain."""


CONFIG = "config.json"
"""What a folder of Hugging Face says of its model."""


def load_architecture(name: str) -> Architecture:
    """By the name or an alias of a shipped one, or the path of a .toml, of a config.json or of a
    folder that has one.

    Raises:
        FigureError: unknown, unreadable, or a key is missing or unknown.
    """
    path = Path(name)
    if path.suffix == ".json":
        return from_hugging_face(path)
    if path.suffix == ".toml":
        return _architecture(Figures.read(path, KEYS))
    found = find(name)
    if found is None and (path / CONFIG).is_file():
        return from_hugging_face(path / CONFIG)
    if found is None:
        raise FigureError(f'no architecture "{name}": {_near(name)}')
    return found


def _near(name: str) -> str:
    """Shipped names that are close to one that is none; all of them if none is."""
    known = {plain(shape.name): shape.name for shape in shipped().values()}
    close = [known[each] for each in near(plain(name), known, most=3)]
    if close:
        return f"did you mean {' or '.join(close)}? Or name a config.json"
    return f"known are {', '.join(sorted(known.values()))}; or name a config.json"


def find(name: str) -> Architecture | None:
    """The shipped architecture of that name, case and punctuation aside."""
    return shipped().get(plain(name))


def plain(name: str) -> str:
    """A name without its owner, case and punctuation: "Qwen/Qwen3-8B" is "qwen38b"."""
    return re.sub(r"[^a-z0-9.]", "", name.rpartition("/")[2].lower())


@cache
def shipped() -> dict[str, Architecture]:
    """All of `architectures/`, by plain name and alias."""
    found = {}
    for path in sorted(resource("architectures").glob("*.toml")):
        file = Figures.read(path, KEYS)
        shape = _architecture(file)
        for name in (shape.name, *file.texts(TOP, "aliases")):
            found[plain(name)] = shape
    return found


def _architecture(file: Figures) -> Architecture:
    file.words(TOP, "source"), file.texts(TOP, "aliases")
    layers = file.count(TOP, "layers")
    hidden, heads = file.count(TOP, "hidden"), file.count(TOP, "heads")
    return Architecture(
        name=file.words(TOP, "name"),
        layers=layers,
        hidden=hidden,
        ffn=file.count(TOP, "ffn"),
        heads=heads,
        kv_heads=file.count(TOP, "kv_heads", up_to(heads), default=heads),
        head_width=file.count(TOP, "head_width", default=max(hidden // heads, 1)),
        vocabulary=file.count(TOP, "vocabulary"),
        positions=file.count(TOP, "positions", AT_LEAST_0, default=0),
        gated=file.flag(TOP, "gated", default=True),
        tied=file.flag(TOP, "tied", default=False),
        sinks=file.flag(TOP, "sinks", default=False),
        window=file.count(TOP, "window", AT_LEAST_0, default=0),
        full_every=file.count(TOP, "full_every", default=1),
        experts=_experts(file) if "experts" in file.sections else None,
        latent=_latent(file) if "latent" in file.sections else None,
        state_space=_state_space(file) if "state_space" in file.sections else None,
    )


def _experts(file: Figures) -> Experts:
    number = file.count("experts", "number")
    layers = up_to(file.count(TOP, "layers"), AT_LEAST_0)
    return Experts(
        number=number,
        per_token=file.count("experts", "per_token", up_to(number)),
        ffn=file.count("experts", "ffn"),
        shared_ffn=file.count("experts", "shared_ffn", AT_LEAST_0, default=0),
        dense_layers=file.count("experts", "dense_layers", layers, default=0),
        every=file.count("experts", "every", default=1),
        latent=file.count("experts", "latent", AT_LEAST_0, default=0),
    )


def _state_space(file: Figures) -> StateSpace:
    within = up_to(file.count(TOP, "layers"), AT_LEAST_0)
    return StateSpace(
        layers=file.count("state_space", "layers", within),
        attention=file.count("state_space", "attention", within),
        mlps=file.count("state_space", "mlps", within),
        heads=file.count("state_space", "heads"),
        head_width=file.count("state_space", "head_width"),
        state_width=file.count("state_space", "state_width"),
        groups=file.count("state_space", "groups"),
        chunk=file.count("state_space", "chunk"),
    )


def _latent(file: Figures) -> Latent:
    return Latent(
        q_rank=file.count("latent", "q_rank", AT_LEAST_0, default=0),
        kv_rank=file.count("latent", "kv_rank"),
        nope_width=file.count("latent", "nope_width", AT_LEAST_0),
        rope_width=file.count("latent", "rope_width", AT_LEAST_0),
        value_width=file.count("latent", "value_width"),
    )
