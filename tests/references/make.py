"""Make tests/golden/references: what verl and TRL compute on seeded batches, for our tests.

    python -m venv env && env/bin/pip install torch==2.13.0
    env/bin/pip install --no-deps -r tests/references/requirements.txt
    env/bin/python tests/references/make.py

Run it in an environment of its own: these libraries are no dependencies of ours. Their functions
are called, never copied. It writes `inputs.safetensors` (batch/field), `outputs.safetensors`
(batch/case/output), and `about.json`: versions, and per case the function and our settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import by_trl
import by_verl
from batches import BATCHES
from case import Case
from safetensors.torch import save_file

OUT = Path(__file__).parents[1] / "golden" / "references"
SIDES = {"ragged": (by_verl,), "pairs": (by_verl, by_trl), "extreme": (by_verl,)}


def references() -> Iterator[tuple[str, Case]]:
    """(batch, case) of all."""
    for name, make in BATCHES.items():
        for side in SIDES[name]:
            for case in side.cases(make()):
                yield name, case


def main() -> None:
    """Write the three files."""
    OUT.mkdir(parents=True, exist_ok=True)
    made = list(references())
    inputs = {f"{b}/{k}": v for b, make in BATCHES.items() for k, v in make().fields.items()}
    outputs = {f"{b}/{c.name}/{k}": v for b, c in made for k, v in c.outputs.items()}
    save_file({k: v.contiguous() for k, v in inputs.items()}, OUT / "inputs.safetensors")
    save_file({k: v.contiguous().clone() for k, v in outputs.items()}, OUT / "outputs.safetensors")
    about = {
        "versions": {name: version(name) for name in ("verl", "trl", "torch", "transformers")},
        "n": {name: make().n for name, make in BATCHES.items()},
        "cases": {c.name: {"function": c.path, "settings": dict(c.settings)} for _, c in made},
    }
    (OUT / "about.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
