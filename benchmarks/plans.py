"""How many plans a second the cost model prices, on one core: time, memory and communication.

    python benchmarks/plans.py [--plans 100000] [--checked 1000] [--beside]

All plans are distinct and nothing is remembered between them. Some are priced again one at a time;
both ways have to agree to 1e-12. GPT3-175B on A100, batches of 512 to 4,096 sequences. `--beside`
also times llm-analysis on one plan of that model; where it isn't installed, how to is told.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from importlib.util import find_spec

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from rpeg.cost.architecture_files import load_architecture
from rpeg.cost.arrays import Array
from rpeg.cost.hardware import load_machine
from rpeg.cost.memory import training_memory
from rpeg.cost.plans import Plans
from rpeg.cost.training import step_time

SHAPE = load_architecture("GPT3-175B")
MACHINE = load_machine("a100")
INSTALL = "pip install fire && pip install --no-deps llm-analysis==0.2.2"
"""Without what it depends on besides: it pins packages of 2023, and uses them for names alone."""

AXES = {
    "tp": (1, 2, 4, 8),
    "pp": (1, 2, 3, 4, 6, 8, 12, 16),
    "dp": (1, 2, 4, 8, 16, 32, 64),
    "cp": (1, 2, 4),
    "vpp": (1, 2, 4),
    "micro": (1, 2, 4, 8),
    "recompute": (0, 1, 2),
    "zero": (0, 1, 3),
    "sp": (0, 1),
    "batch": (512, 1024, 2048, 4096),
}


def distinct(number: int) -> Plans:
    """So many different plans. Raises ValueError where there are not as many."""
    rows = list(itertools.islice(itertools.product(*reversed(AXES.values())), number))
    if len(rows) < number:
        raise ValueError(f"there are {len(rows)} distinct plans")
    columns = dict(zip(reversed(AXES), np.array(rows, dtype=np.float64).T, strict=True))
    return Plans.of(seq=2048, **columns)


def costs(plans: Plans) -> tuple[Array, ...]:
    """What is compared: the step and its parts, memory and its parts."""
    priced = step_time(SHAPE, MACHINE, plans), training_memory(SHAPE, plans)
    return tuple(getattr(part, name) for part in priced for name in part.__dataclass_fields__)


def worst_difference(plans: Plans, together: tuple[Array, ...], checked: int) -> float:
    """The largest relative difference to pricing one plan at a time."""
    worst = 0.0
    for index in np.linspace(0, plans.tp.size - 1, checked).astype(int):
        alone = costs(plans.at(int(index)))
        for whole, single in zip(together, alone, strict=True):
            worst = max(worst, float(abs(whole[index] - single) / max(abs(single), 1e-300)))
    return worst


def llm_analysis_rate(number: int = 200) -> float:
    """Analyses a second of llm-analysis: GPT3-175B with tp, pp and dp of 8, time and memory.

    Raises ModuleNotFoundError where it isn't installed.
    """
    from llm_analysis.analysis import LLMAnalysis
    from llm_analysis.config import (
        ModelConfig,
        ParallelismConfig,
        get_dtype_config_by_name,
        get_gpu_config_by_name,
    )
    from llm_analysis.logger import logger

    logger.setLevel("ERROR")
    model = ModelConfig(
        name="gpt3-175b",
        num_layers=SHAPE.layers,
        n_head=SHAPE.heads,
        hidden_dim=SHAPE.hidden,
        vocab_size=SHAPE.vocabulary,
        max_seq_len=2048,
        ffn_embed_dim=SHAPE.ffn,
        model_type="gpt",
    )
    gpu, widths = get_gpu_config_by_name("a100-sxm-80gb"), get_dtype_config_by_name("w16a16e16")
    degrees = ParallelismConfig(tp_size=8, pp_size=8, dp_size=8)
    started = time.process_time()
    for _ in range(number):
        analysis = LLMAnalysis(model, gpu, widths, degrees)
        analysis.training(batch_size_per_gpu=1, global_batch_size=1536, seq_len=2048)
    return number / (time.process_time() - started)


def main() -> None:
    """Times, compares, prints."""
    parser = argparse.ArgumentParser(description="Plans priced a second, on one core.")
    parser.add_argument("--plans", type=int, default=100_000)
    parser.add_argument("--checked", type=int, default=1000)
    parser.add_argument("--beside", action="store_true", help="time llm-analysis too")
    options = parser.parse_args()
    if options.beside and not all(map(find_spec, ("llm_analysis", "fire"))):
        raise SystemExit(f"--beside: llm-analysis isn't installed: {INSTALL}")
    plans = distinct(options.plans)
    started = time.process_time()
    together = costs(plans)
    seconds = time.process_time() - started
    print(f"{options.plans} plans in {seconds:.2f} s: {options.plans / seconds:,.0f} a second")
    started = time.process_time()
    worst = worst_difference(plans, together, options.checked)
    alone = options.checked / (time.process_time() - started)
    print(f"{options.checked} one at a time: {alone:,.0f} a second, difference {worst:.1e}")
    if options.beside:
        print(f"llm-analysis: {llm_analysis_rate():,.0f} a second")
    if worst > 1e-12:
        raise SystemExit("the two ways differ by more than 1e-12")


if __name__ == "__main__":
    main()
