"""A folder with a model that two ranks can split, and rows."""

from pathlib import Path

import pytest

from tests.unit.interp.l1.executing import Placed
from tests.unit.interp.pipelines import write_model, write_rows


@pytest.fixture(scope="session")
def placed(tmp_path_factory: pytest.TempPathFactory) -> Placed:
    folder: Path = tmp_path_factory.mktemp("placed")
    write_model(folder / "tiny", num_key_value_heads=2, num_hidden_layers=2)
    write_rows(folder / "rows.jsonl")
    return Placed(folder)
