"""How a launch ends: its exit code, and one line at most."""

import signal

import pytest
from torch.distributed.elastic.multiprocessing import SignalException

from rpeg.runtime import launch


def test_a_signal_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(options: object) -> None:
        raise SignalException("got a signal", signal.SIGINT)

    monkeypatch.setattr(launch, "torchrun", stopped)
    assert launch.main(["--nproc-per-node", "2", "program.py"]) == 130
    said = capsys.readouterr().err.splitlines()
    assert said == ["stopped: the same command goes on from the last checkpoint"]
