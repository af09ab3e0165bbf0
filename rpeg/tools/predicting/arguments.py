"""The options of every command that prices a pipeline: which cluster, which plan, which models."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rpeg.ir.clusters import ClusterError, known_clusters, load_cluster
from rpeg.ir.figures import FigureError
from rpeg.tools.ahead import Ahead, ahead_arguments, ahead_of
from rpeg.tools.console import USAGE, Failure, positive


@dataclass(frozen=True)
class Target:
    """What the command line says of where a pipeline is to run."""

    cluster: str | None
    """A sized cluster, as `load_cluster` takes it; None: that of the plan."""
    plan: str | None
    architectures: Mapping[str, str]
    """By model: the name of a shipped architecture, or a path."""
    sets: Sequence[str] = ()
    ahead: Ahead | None = None
    """How far generation runs ahead; None: as the text says."""


def target_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that `target` reads; `--set` is the command's own where it has one already."""
    parser.add_argument(
        "--cluster",
        metavar="NAME|FILE.toml",
        help="where it is to run: alps-16 is 16 nodes of alps; default: the plan's cluster",
    )
    parser.add_argument(
        "--gpus", type=positive, metavar="N", help="how many GPUs of it: whole nodes"
    )
    parser.add_argument(
        "--plan", metavar="NAME", help="a plan of the file; default: its plan for the cluster"
    )
    parser.add_argument(
        "--arch",
        action="append",
        default=[],
        metavar="MODEL=NAME|FILE",
        help="a model's shape: a name of architectures/, a .toml file, a config.json or its folder",
    )
    ahead_arguments(parser)


def target(options: argparse.Namespace) -> Target:
    """What the options say. Raises Failure for an unknown cluster or architecture."""
    architectures = _architectures(options.arch)
    cluster = _cluster(options.cluster, options.gpus)
    return Target(cluster, options.plan, architectures, options.set, ahead_of(options))


def files_read(options: argparse.Namespace, source: Path) -> Iterator[Path]:
    """What a command with these options reads: the pipeline, and files of cluster and models."""
    yield source
    if options.cluster is not None:
        yield Path(options.cluster)
    for text in options.arch:
        named = Path(text.partition("=")[2])
        yield named / "config.json" if named.is_dir() else named


def _architectures(texts: Sequence[str]) -> Mapping[str, str]:
    """By model. Raises Failure for a model that is named twice."""
    found: dict[str, str] = {}
    for text in texts:
        model, name = _architecture(text)
        if model in found:
            both = f"{model}={found[model]} and {model}={name}"
            raise Failure(f"--arch: `{model}` is named twice: {both}; keep one", USAGE)
        found[model] = name
    return found


def _architecture(text: str) -> tuple[str, str]:
    from rpeg.cost.architecture_files import load_architecture

    model, equals, name = text.partition("=")
    if not (model and equals and name):
        raise Failure(f"--arch {text}: write MODEL=NAME, such as actor=qwen2.5-7b", USAGE)
    try:
        load_architecture(name)
    except FigureError as error:
        raise Failure(f"--arch {model}: {error}", USAGE) from None
    return model, name


def _cluster(name: str | None, gpus: int | None) -> str | None:
    if name is None:
        if gpus is not None:
            raise Failure("--gpus counts those of a cluster: add --cluster NAME", USAGE)
        return None
    try:
        return name if gpus is None else _of_so_many(name, gpus)
    except ClusterError as error:
        raise Failure(f"--cluster {name}: {error}", USAGE) from None


def _of_so_many(name: str, gpus: int) -> str:
    """The cluster's nodes that have so many GPUs. Raises ClusterError."""
    if Path(name).suffix == ".toml":
        raise ClusterError("a file says itself how large it is, with max_nodes: leave --gpus out")
    base, _, size = name.rpartition("-")
    if base in known_clusters() and size.isdecimal():
        raise ClusterError(f"it has a size, {size} nodes: leave --gpus out, or write {base}")
    per_node = load_cluster(f"{name}-1").gpus_per_node
    if not per_node or gpus % per_node:
        has = f"its nodes have {per_node} each" if per_node else "it has none"
        raise ClusterError(f"{gpus} GPUs are not whole nodes: {has}")
    return f"{name}-{gpus // per_node}"
