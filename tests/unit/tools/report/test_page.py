"""The report's page: its figures are the estimate's, and no two texts lie on each other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rpeg.ir.stages import stages
from rpeg.tools.report.page import page
from tests.unit.tools.commands import Shell
from tests.unit.tools.report.browser import Browser, browser, meetings
from tests.unit.tools.report.reader import Reader, at
from tests.unit.tools.report.sample import EXAMPLES, estimate, pipeline


@pytest.fixture(scope="module")
def read() -> Reader:
    reader = Reader()
    reader.feed(page(estimate().to_json(), pipeline()))
    return reader


def test_figures_are_those_of_the_json(read: Reader) -> None:
    table = json.loads(json.dumps(estimate().to_json()))
    assert len(read.figures) > 100
    assert [(key, value) for key, value in read.figures if at(table, key) != value] == []


def test_no_figure_is_without_a_key(read: Reader) -> None:
    assert read.loose == []


def leaves(table: Any, path: str = "") -> Iterator[str]:
    """Paths to all numbers of a table."""
    pairs = enumerate(table) if isinstance(table, list) else table.items()
    for key, value in pairs:
        here = f"{path}.{key}" if path else str(key)
        if isinstance(value, list | dict):
            yield from leaves(value, here)
        elif isinstance(value, int | float):
            yield here


def test_every_figure_of_the_json_is_on_the_page(read: Reader) -> None:
    shown = {key for key, _ in read.figures}
    missing = [
        key
        for key in leaves(estimate().to_json())
        if key not in shown and key.rpartition(".")[0] not in shown
        if not re.match(r"memory\.\d+\.timeline", key)
    ]
    assert missing == ["cores"]  # 0 on a cluster of GPUs


def test_a_cluster_of_cores_counts_cores() -> None:
    reader = Reader()
    reader.feed(page(replace(estimate(), gpus=0, cores=4).to_json(), pipeline()))
    assert ("cores", 4) in reader.figures
    assert "gpus" not in {key for key, _ in reader.figures}


def test_page_stands_alone(read: Reader) -> None:
    assert not read.tags & {"script", "link", "img", "iframe", "object"}
    text = page(estimate().to_json(), pipeline())
    assert not re.search(r"@import|url\(|src=|href=", text)


def test_names_are_text() -> None:
    reader = Reader()
    name = "<script>alert(1)</script>\"'&"
    reader.feed(page(estimate().to_json() | {"pipeline": name}, pipeline()))
    assert "script" not in reader.tags
    assert ("pipeline", name) in reader.figures


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.rpeg")), ids=lambda path: path.stem)
def test_every_example_is_drawn(path: Path) -> None:
    drawn, reader = pipeline(path.stem), Reader()
    text = page(estimate().to_json(), drawn)
    reader.feed(text)
    assert reader.loose == []
    graph = text[text.index("<svg") : text.index("</svg>")]
    assert (named := stages(drawn))
    assert [name for name in named if name not in graph] == []


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def misplaced(chromium: Browser) -> list[object]:
    """Texts that lie on each other, or reach out of their drawing or of the page."""
    boxes = chromium.boxes()
    assert len(boxes) > 50
    inside = chromium.tell("return document.documentElement.scrollWidth <= innerWidth")
    wide = [] if inside else ["the page scrolls sideways"]
    return [*meetings(boxes), *(box.text for box in boxes if not box.inside), *wide]


@pytest.mark.parametrize("width", [800, 1280])
@pytest.mark.parametrize("media", ["light", "dark", "print"])
def test_no_two_texts_lie_on_each_other(
    chromium: Browser, tmp_path: Path, media: str, width: int
) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(estimate().to_json(), pipeline()), encoding="utf-8")
    chromium.show(path, media, width)
    assert misplaced(chromium) == []
    background = chromium.tell("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (media != "dark")


@pytest.mark.parametrize("name", ["sft_warmup:sft_warmup", "async_grpo_alps64:async_grpo"])
def test_nor_on_pages_of_predictions(name: str, chromium: Browser, shell: Shell) -> None:
    file, _, one = name.partition(":")
    words = ("report", f"{EXAMPLES / file}.rpeg:{one}", "--cluster", "alps-64", "-o", "p.html")
    assert shell(*words).code == 0
    for width in (800, 1280):
        chromium.show(shell.folder / "p.html", "light", width)
        assert misplaced(chromium) == []


def test_texts_on_each_other_are_found(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text("<p>one</p><p style='margin-top:-28px'>two</p><p>three</p>")
    chromium.show(path, "light", 800)
    assert meetings(chromium.boxes()) == [("one", "two")]
