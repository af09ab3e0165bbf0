"""What the environment variable RPEG_VERSIONS may say: which of a window's versions are sampled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rpeg.rundir.failures import RuntimeFailure

VARIABLE = "RPEG_VERSIONS"
RULES = ("newest", "oldest")


def refuse_versions(environment: Mapping[str, str]) -> None:
    """Raises RuntimeFailure if the variable names neither a rule nor a file."""
    text = environment.get(VARIABLE, RULES[0])
    if text not in RULES and not Path(text).is_file():
        told = f"{VARIABLE} must be newest, oldest or a run's metrics.jsonl"
        raise RuntimeFailure(f"{told}, not `{text}`")
