"""Files of one JSON object per line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rpeg.rundir import jsonl


@pytest.mark.parametrize(
    "objects",
    [
        [],
        [{}],
        [{"a": 1}, {}, {"b": [1, [2, 3]], "c": {"d": None, "e": True}}],
        [{"text": 'two\nlines, "}\n{" and \0 in é'}, {"text": "}, {"}],
        [{"a": [{"b": 1}, {"c": 2}]}, {"d": 3}],
    ],
)
def test_lines_are_what_json_makes_of_each_object(
    objects: list[dict[str, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "lines.jsonl"
    jsonl.append(path, objects)
    jsonl.append(path, objects)
    wanted = [json.dumps(each, ensure_ascii=False) + "\n" for each in objects]
    assert path.read_text(encoding="utf-8") == "".join(2 * wanted)
    assert jsonl.read(path) == 2 * objects


def test_objects_are_made_of_columns() -> None:
    columns: dict[str, jsonl.Column] = {
        "100 %": jsonl.encoded(["a%s", 'say "b"']),
        "n": [1, -2],
        "in": {"x": jsonl.encoded([0.5, None]), "none": {}},
    }
    found = jsonl.objects_of(columns)
    assert list(map(json.loads, found)) == [
        {"100 %": "a%s", "n": 1, "in": {"x": 0.5, "none": {}}},
        {"100 %": 'say "b"', "n": -2, "in": {"x": None, "none": {}}},
    ]
    assert found[0] == json.dumps(json.loads(found[0]))
