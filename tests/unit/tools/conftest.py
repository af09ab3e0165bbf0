from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.tools.commands import Shell


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """`rpeg` in a scratch folder with a pipeline, a model folder and its rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    made = Shell(tmp_path, capsys)
    made.write()
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text('{"model_type": "qwen3"}')
    (tmp_path / "tiny" / "tokenizer.json").write_text("{}")
    for rows in ("rows.jsonl", "more.jsonl"):
        (tmp_path / rows).write_text('{"prompt": "1", "answer": "1"}\n' * 64)
    return made
