"""Places for the nodes of an acyclic graph: in layers, each as late as its readers allow.

The method of Sugiyama, Tagawa and Toda (1981): layers of bounded width, a bend in every layer that
an edge passes, orders by the mean place of neighbours, and places near to theirs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise

from rpeg.tools.report.spread import spread

SWEEPS = 8
"""Passes down and up that order and place the layers."""

Pair = tuple[str, str]
Item = str | tuple[str, str, int]
"""A node, or the bend of an edge in a layer."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of what is placed, in the units of the drawing."""

    node: float
    bend: float
    gap: float
    """Between neighbours of a layer."""
    widest: int
    """Nodes of a layer at most."""

    def of(self, item: Item) -> float:
        """The width of a node or a bend."""
        return self.node if isinstance(item, str) else self.bend


@dataclass(frozen=True)
class Arrangement:
    """Nodes in layers from the top, and the way of every edge through them."""

    layer: Mapping[str, int]
    x: Mapping[str, float]
    """The middle of each node, from 0 to `width`."""
    ways: Mapping[Pair, Sequence[tuple[float, int]]]
    """(x, layer) of an edge's source, its bends and its target."""
    width: float
    layers: int


def arrange(nodes: Sequence[str], edges: Sequence[Pair], sizes: Sizes) -> Arrangement:
    """Places the nodes of a graph. Raises graphlib.CycleError for a cycle."""
    depth = _depths(nodes, edges, sizes.widest)
    layers: list[list[Item]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in nodes:
        layers[depth[node]].append(node)
    chains = {(source, target): _chain(source, target, depth) for source, target in edges}
    for (source, _), chain in chains.items():
        for number, bend in enumerate(chain[1:-1], depth[source] + 1):
            layers[number].append(bend)
    near = _neighbours(chains)
    _order(layers, near)
    width, x = _places(layers, near, sizes)
    layer_of = {item: k for k, items in enumerate(layers) for item in items}
    ways = {edge: [(x[i], layer_of[i]) for i in chain] for edge, chain in chains.items()}
    return Arrangement(depth, {n: x[n] for n in nodes}, ways, width, len(layers))


def _depths(nodes: Sequence[str], edges: Sequence[Pair], widest: int) -> dict[str, int]:
    """The layer of each node from the top, as low as the nodes that read it allow."""
    readers: dict[str, set[str]] = {node: set() for node in nodes}
    for source, target in edges:
        readers[source].add(target)
    height: dict[str, int] = {}
    held: Counter[int] = Counter()
    for node in TopologicalSorter(readers).static_order():
        place = 1 + max((height[reader] for reader in readers[node]), default=-1)
        while held[place] >= widest:
            place += 1
        height[node] = place
        held[place] += 1
    top = max(height.values(), default=0)
    return {node: top - place for node, place in height.items()}


def _chain(source: str, target: str, depth: Mapping[str, int]) -> list[Item]:
    bends = ((source, target, k) for k in range(depth[source] + 1, depth[target]))
    return [source, *bends, target]


def _neighbours(chains: Mapping[Pair, Sequence[Item]]) -> dict[Item, list[Item]]:
    """What an item is joined to in the layers above and below."""
    near: dict[Item, list[Item]] = defaultdict(list)
    for chain in chains.values():
        for upper, lower in pairwise(chain):
            near[upper].append(lower)
            near[lower].append(upper)
    return near


def _sweep(count: int) -> Iterator[int]:
    """Numbers of layers: down and up, some times over."""
    for turn in range(SWEEPS):
        yield from range(count) if turn % 2 == 0 else reversed(range(count))


def _order(layers: list[list[Item]], near: Mapping[Item, Sequence[Item]]) -> None:
    """Sorts each layer by where its neighbours stand in theirs."""
    rank = {i: k / len(items) for items in layers for k, i in enumerate(items)}
    for number in _sweep(len(layers)):
        layers[number].sort(key=lambda item: _mean(rank, item, near))
        rank |= {i: k / len(layers[number]) for k, i in enumerate(layers[number])}


def _places(
    layers: Sequence[Sequence[Item]], near: Mapping[Item, Sequence[Item]], sizes: Sizes
) -> tuple[float, dict[Item, float]]:
    """The width of all, and the middle of each item: near its neighbours, apart from the others."""
    width = max((_extent(items, sizes) for items in layers), default=0.0)
    x = {i: width * (k + 0.5) / len(items) for items in layers for k, i in enumerate(items)}
    for number in _sweep(len(layers)):
        items = layers[number]
        wanted = [_mean(x, item, near) for item in items]
        apart = [0.0, *(_distance(a, b, sizes) for a, b in pairwise(items))]
        low, high = sizes.of(items[0]) / 2, width - sizes.of(items[-1]) / 2
        x |= zip(items, spread(wanted, apart, low, high), strict=True)
    return width, x


def _mean(place: Mapping[Item, float], item: Item, near: Mapping[Item, Sequence[Item]]) -> float:
    around = near.get(item)
    return sum(place[other] for other in around) / len(around) if around else place[item]


def _distance(left: Item, right: Item, sizes: Sizes) -> float:
    return (sizes.of(left) + sizes.of(right)) / 2 + sizes.gap


def _extent(items: Sequence[Item], sizes: Sizes) -> float:
    return sum(map(sizes.of, items)) + sizes.gap * (len(items) - 1)
