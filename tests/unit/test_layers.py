"""Imports point down only: tools > lowering, planner, interp > passes > cost > frontend > ir.

`rpeg.runtime` stands apart: nothing of the compiler below it, nothing but tools above it, except
that the interpreter takes from there what docs/decisions/0003 lists. Within a layer no modules
import each other in a circle. Imports in functions and for types alone count.
"""

import ast
import sys
from collections.abc import Iterator, Mapping, Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LAYERS = (
    {"resources", "lifetime", "divisibility", "sharding", "rundir"},
    {"ir"},
    {"frontend"},
    {"cost"},
    {"passes"},
    {"lowering", "planner", "interp"},
    {"tools", "universe"},
)
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}

SHARED_WITH_INTERP = (
    "advantages",
    "batches.batching",
    "batches.spelling",
    "data",
    "engine.philox",
    "losses",
    "models.model_source",
    "models.tokenizer",
    "recordings.oracle",
    "recordings.recording",
    "selection",
    "trajectories",
    "verifiers",
)
"""Modules of `rpeg.runtime` that say what is trained on; none of those that train or generate."""

GENERATED_MAY_IMPORT = {"rpeg.runtime", *sys.stdlib_module_names}


def imported(source: str, package: str = "") -> Iterator[str]:
    """Every dotted name that the source imports; `from a import b` counts as `a.b`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, package)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _base(node: ast.ImportFrom, package: str) -> str:
    if node.level == 0:
        return node.module or ""
    above = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join(above + ([node.module] if node.module else []))


def allowed(importer: str, target: str) -> bool:
    """Whether the module `importer` of rpeg may import `target`, both dotted, both within rpeg."""
    above, below = importer.split(".")[1], target.split(".")[1]
    if above == below or below not in {*RANK, "runtime"}:  # the same part, or a name of rpeg itself
        return True
    if below == "runtime":
        shared = (f"rpeg.runtime.{name}." for name in SHARED_WITH_INTERP)
        return above == "tools" or (above == "interp" and f"{target}.".startswith(tuple(shared)))
    if above == "runtime":
        return below in LAYERS[0]
    return RANK[below] < RANK[above]


def test_imports_point_down() -> None:
    wrong = []
    for path in sorted((ROOT / "rpeg").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        package = ".".join(parts[:-1])
        if parts[1:] == ("__init__",):
            continue
        for target in imported(path.read_text(encoding="utf-8"), package):
            if target.startswith("rpeg.") and not allowed(".".join(parts), target):
                wrong.append(f"{'/'.join(parts)}.py imports {target}")
    assert not wrong, "\n".join(wrong)


def sources() -> dict[str, tuple[str, str]]:
    """(text, package) of each module by its dotted name."""
    found = {}
    for path in sorted((ROOT / "rpeg").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        package = ".".join(parts[:-1])
        name = package if parts[-1] == "__init__" else ".".join(parts)
        found[name] = path.read_text(encoding="utf-8"), package
    return found


def graph(modules: Mapping[str, tuple[str, str]]) -> dict[str, set[str]]:
    """Which modules each one imports; `from a import b` is of `a` where `a.b` is no module."""
    edges: dict[str, set[str]] = {}
    for name, (text, package) in modules.items():
        targets = imported(text, package)
        near = (t if t in modules else t.rpartition(".")[0] for t in targets)
        edges[name] = {t for t in near if t in modules and t != name}
    return edges


def circle(edges: Mapping[str, Set[str]]) -> list[str]:
    """Modules that import each other, each the one before it; empty if none do."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    found = circle(graph(sources()))
    assert not found, " is imported by ".join(found)


@pytest.mark.parametrize(
    "back", ["from rpeg.a import thing", "def f():\n    import rpeg.a", "from . import a"]
)
def test_circles_are_found(back: str) -> None:
    modules = {"rpeg.a": ("from rpeg.b import x", "rpeg"), "rpeg.b": (back, "rpeg")}
    assert set(circle(graph(modules))) == {"rpeg.a", "rpeg.b"}
    assert circle(graph({**modules, "rpeg.b": ("import rpeg.c", "rpeg")})) == []


def test_every_part_has_a_place() -> None:
    parts = {path.stem for path in (ROOT / "rpeg").iterdir() if path.name[0] not in "._"}
    assert parts - {*RANK, "runtime", "py"} == set()


@pytest.mark.parametrize(
    ("importer", "target"),
    [
        ("rpeg.ir.types.values", "rpeg.passes.fuse"),
        ("rpeg.runtime.trainer", "rpeg.ir.types.values"),
        ("rpeg.interp.step", "rpeg.runtime.engine"),
        ("rpeg.interp.step", "rpeg.runtime.engine.embedded"),
        ("rpeg.interp.step", "rpeg.runtime.trainer"),
        ("rpeg.interp.step", "rpeg.runtime.megatron.replica"),
        ("rpeg.interp.step", "rpeg.runtime"),
        ("rpeg.lowering.emit", "rpeg.planner.search"),
        ("rpeg.passes.fuse", "rpeg.runtime.losses"),
    ],
)
def test_upward_imports_are_found(importer: str, target: str) -> None:
    assert not allowed(importer, target)


@pytest.mark.parametrize(
    ("importer", "target"),
    [
        ("rpeg.tools.rpeg", "rpeg.runtime.start"),
        ("rpeg.interp.step", "rpeg.runtime.losses.clip"),
        ("rpeg.interp.step", "rpeg.runtime.engine.philox.gumbel"),
        ("rpeg.passes.fuse", "rpeg.ir.types.values"),
        ("rpeg.ir.clusters", "rpeg.resources.folder"),
        ("rpeg.ir.types.values", "rpeg.__version__"),
    ],
)
def test_downward_imports_pass(importer: str, target: str) -> None:
    assert allowed(importer, target)


def test_nested_and_relative_imports_are_seen() -> None:
    source = "def f():\n    from ..passes import fuse\n    import rpeg.cost.model\n"
    assert list(imported(source, "rpeg.ir")) == ["rpeg.passes.fuse", "rpeg.cost.model"]


def foreign(source: str) -> list[str]:
    """What a generated program imports besides the runtime and the standard library."""
    return [
        name
        for name in imported(source)
        if not name.startswith("rpeg.runtime") and name.split(".")[0] not in GENERATED_MAY_IMPORT
    ]


def test_generated_programs_import_the_runtime_only() -> None:
    assert foreign("from rpeg.ir.types import values\nimport torch") == [
        "rpeg.ir.types.values",
        "torch",
    ]
    assert foreign("import os\nfrom rpeg import runtime as rt") == []
    for path in sorted((ROOT / "tests" / "golden").rglob("program_*.py")):
        assert foreign(path.read_text(encoding="utf-8")) == [], path
