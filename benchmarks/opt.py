"""CPU seconds to parse, verify and print a pipeline: rpeg-opt and xDSL's xdsl-opt, alternately.

    python benchmarks/opt.py [--operations 10000] [--rounds 5]

Both read the same MLIR text, in our dialects, and print the same. The pipeline is one step; another
one of a few operations shows what starting up costs. Prints each round, the medians, their ratio.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SIDES = {
    "rpeg-opt": ["-m", "rpeg.tools.rpeg_opt"],
    "xdsl-opt": [str(ROOT / "benchmarks" / "sides" / "xdsl_opt.py")],
}
SMALL = 10
PART = 5
"""Operations of a part of the step."""
PIPELINE = """\
rpeg 0.1
pipeline wide {{
  model actor = policy("models/tiny-qwen2", optim=adamw(lr=1e-6))
  data train = prompts("gym:countdown", seed=1)
  verifier correct = outcome("gym:countdown")
  step i < 300 {{
{lines}
    actor@i+1 = update(actor@i, {losses}, agg=token_mean)
  }}
}}
"""


def main() -> None:
    """Runs the benchmark and prints what it measured."""
    options = parse()
    for operations in (SMALL, options.operations):
        with tempfile.TemporaryDirectory() as folder:
            path = write(Path(folder), operations)
            same_output(path)
            print(report(operations, measure(path, options.rounds)), flush=True)


def write(folder: Path, operations: int) -> Path:
    """A pipeline of at least so many operations as MLIR, by way of its text in the language."""
    source, path = folder / "wide.rpeg", folder / "wide.mlir"
    parts = -(-operations // PART)
    lines = "\n".join(line for n in range(parts) for line in part(n))
    losses = ", ".join(f"pg_{n}" for n in range(parts))
    source.write_text(PIPELINE.format(lines=lines, losses=losses), encoding="utf-8")
    path.write_bytes(run("rpeg-opt", source)[0])
    return path


def part(n: int) -> Iterator[str]:
    """A part of the step: it samples a batch of its own and has a loss of its own."""
    yield f"q_{n} = batch(train, size=64)"
    yield f"y_{n}, lp_{n} = generate(actor@i, q_{n}, n=8, max_tokens=64)"
    yield f"r_{n} = score(correct, y_{n})"
    yield f"adv_{n} = group_advantage(r_{n}, baseline=mean, scale=std)"
    yield f"pg_{n} = ppo_clip(y_{n}, adv_{n}, lp_{n}, clip_low=0.2, clip_high=0.2)"


def run(side: str, path: Path) -> tuple[bytes, float]:
    """What a side prints, and its CPU seconds. Raises RuntimeError with its messages."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        command = [sys.executable, *SIDES[side], str(path)]
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            raise RuntimeError(f"{side} failed:\n{err.read().decode()[-3000:]}")
        return out.read(), usage.ru_utime + usage.ru_stime


def same_output(path: Path) -> None:
    """One run of each, which also compiles Python's byte code. Raises RuntimeError."""
    texts = [run(side, path)[0].strip() for side in SIDES]
    if texts[0] != texts[1]:
        raise RuntimeError("the two sides print different texts")


def measure(path: Path, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each side, round by round."""
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side, found in seconds.items():
            found.append(run(side, path)[1])
    return seconds


def report(operations: int, seconds: dict[str, list[float]]) -> str:
    """A line a side, and the ratio of the medians."""
    lines = [
        f"{side}  {operations:6} operations {statistics.median(found):7.2f} s  rounds "
        + " ".join(f"{s:.2f}" for s in found)
        for side, found in seconds.items()
    ]
    ours, theirs = (statistics.median(found) for found in seconds.values())
    return "\n".join([*lines, f"ratio {ours / theirs:.2f}"])


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
