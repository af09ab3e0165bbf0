"""Data sets: sources and their errors, shares, order, cursor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rpeg.runtime.data import DemoData, PromptData, permutation
from rpeg.runtime.errors import CheckpointFailure, DataFailure, LayoutFailure
from rpeg.runtime.run import Run


@pytest.fixture
def rows(run: Run) -> str:
    """Ten rows; prompt `k` is row k."""
    write(
        run.root / "rows.jsonl", [{"prompt": str(k), "answer": k, "kind": "x"} for k in range(10)]
    )
    return "rows.jsonl"


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def prompts(data: PromptData, size: int, **settings: object) -> list[str]:
    return [row.prompt for row in data.batch(size=size, **settings).rows]  # type: ignore[arg-type]


def test_fields_of_a_row(run: Run, rows: str) -> None:
    row = PromptData(run, "train", source=rows).batch(size=1, order="sequential").rows[0]
    assert (row.prompt, row.answer, row.completion, row.metadata) == ("0", "0", None, {"kind": "x"})


def test_an_epoch_gives_every_row_once_and_the_next_in_another_order(run: Run, rows: str) -> None:
    data = PromptData(run, "train", source=rows, seed=3)
    batches = [prompts(data, 5) for _ in range(4)]
    first, second = batches[0] + batches[1], batches[2] + batches[3]
    assert sorted(first) == sorted(second) == sorted(map(str, range(10)))
    assert first != second


def test_ordinals_count_on_over_epochs_within_a_batch(run: Run, rows: str) -> None:
    data = PromptData(run, "train", source=rows)
    data.batch(size=8)
    batch = data.batch(size=4, order="sequential")
    assert batch.ordinals.tolist() == [8, 9, 10, 11]
    assert [row.prompt for row in batch.rows] == ["8", "9", "0", "1"]


def test_order_depends_on_every_seed() -> None:
    orders = [
        permutation(50, *seeds).tolist() for seeds in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    ]
    assert len({tuple(order) for order in orders}) == 4
    assert orders[0] == permutation(50, 0, 0, 0).tolist()
    assert sorted(permutation(50, -1, 0, 0)) == list(range(50))


@pytest.mark.parametrize("width", [1, 2, 4])
def test_shares_of_any_width_make_the_same_batch(run: Run, rows: str, width: int) -> None:
    whole = prompts(PromptData(run, "a", source=rows), 8)
    shares = []
    for index in range(width):
        run.data_parallel = (index, width)
        shares += prompts(PromptData(run, f"b{index}", source=rows), 8)
    assert shares == whole


def test_every_row_counts_once_over_all_shares(run: Run, rows: str) -> None:
    counted, lengths = [], set()
    for index in range(4):
        run.data_parallel = (index, 4)
        everything, count = PromptData(run, f"d{index}", source=rows).all(limit=9)
        lengths.add(len(everything.rows))
        counted += [row.prompt for row in everything.rows[:count]]
    assert counted == [str(k) for k in range(9)]
    assert lengths == {3}


def test_a_batch_must_divide_among_the_shares(run: Run, rows: str) -> None:
    run.data_parallel = (0, 4)
    with pytest.raises(LayoutFailure, match=r"6 rows of `train`.*multiple of 4"):
        PromptData(run, "train", source=rows).batch(size=6)


def test_a_batch_larger_than_the_data_set_is_refused(run: Run, rows: str) -> None:
    data = PromptData(run, "train", source=rows)
    assert len(data.batch(size=10).rows) == 10
    with pytest.raises(DataFailure, match=r"batch of 9223372036854775807 rows .*`train`.* has 10"):
        data.batch(size=2**63 - 1)


def test_cursor_comes_back_and_other_rows_are_noticed(run: Run, rows: str) -> None:
    data = PromptData(run, "train", source=rows)
    data.batch(size=4)
    saved = data.state_dict()
    later = prompts(data, 4)
    again = PromptData(run, "again", source=rows)
    again.load_state_dict(saved)
    assert prompts(again, 4) == later
    write(run.root / rows, [{"prompt": "other"}])
    with pytest.raises(CheckpointFailure, match=r"rows of `new` changed.*10 then, 1 now"):
        PromptData(run, "new", source=rows).load_state_dict(saved)


def test_limit_and_split(run: Run, rows: str) -> None:
    assert len(PromptData(run, "few", source=rows, limit=3)) == 3
    (run.root / "set").mkdir()
    write(run.root / "set" / "test.jsonl", [{"prompt": "t"}])
    assert len(PromptData(run, "test", source="set", split="test")) == 1
    assert len(PromptData(run, "hub", source="hf:set", split="test")) == 1
    with pytest.raises(DataFailure, match=r"name a `split` of it \(found: test\)"):
        PromptData(run, "none", source="set")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "a"', r"bad\.jsonl:2:15: no valid JSON"),
        ('["a"]', r"bad\.jsonl:2: a row must be a JSON object, not list"),
        ('{"text": "a"}', r"bad\.jsonl:2: no field `prompt` \(found: text\)"),
        ('{"prompt": 1}', r"bad\.jsonl:2: `prompt` must be a text, not int"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(run: Run, line: str, message: str) -> None:
    (run.root / "bad.jsonl").write_text('{"prompt": "a"}\n' + line + "\n")
    with pytest.raises(DataFailure, match=message):
        PromptData(run, "train", source="bad.jsonl")


def test_missing_and_empty_files(run: Run) -> None:
    (run.root / "empty.jsonl").write_text("\n")
    with pytest.raises(DataFailure, match="holds no rows"):
        PromptData(run, "a", source="empty.jsonl")
    with pytest.raises(DataFailure, match=r"cannot read .*nowhere\.jsonl: No such file"):
        PromptData(run, "b", source="nowhere.jsonl")


def test_demonstrations_need_completions(run: Run, rows: str) -> None:
    write(run.root / "demos.jsonl", [{"prompt": "a", "completion": "b"}])
    assert DemoData(run, "good", source="demos.jsonl").batch(size=1).rows[0].completion == "b"
    with pytest.raises(DataFailure, match=r"rows\.jsonl:1: no `completion`, but `bad` holds demon"):
        DemoData(run, "bad", source=rows)


def test_gym_rows_are_a_function_of_seed_and_index(run: Run) -> None:
    data = PromptData(run, "train", source="gym:chain_sum", seed=1, limit=20)
    again = PromptData(run, "again", source="gym:chain_sum", seed=1, limit=20)
    other = PromptData(run, "other", source="gym:chain_sum", seed=2, limit=20)
    assert len(data) == 20
    assert prompts(data, 8) == prompts(again, 8) != prompts(other, 8)
    assert data.batch(size=1).rows[0].answer is not None


def test_unknown_gym_task_suggests_the_near_one(run: Run) -> None:
    with pytest.raises(DataFailure, match="no task `countdwn`; did you mean `countdown`"):
        PromptData(run, "train", source="gym:countdwn")
