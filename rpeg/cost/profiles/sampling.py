"""Stages that sample: replicas of an engine, each with its share of the prompts.

An engine with continuous batching (`vllm`) refills as sequences end. The embedded one has whole
weights on every process and decodes 128 samples at a time until the last of them ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rpeg.cost.arrays import Array, larger
from rpeg.cost.draining import drained_time
from rpeg.cost.generation import (
    Engine,
    Requests,
    Serving,
    concurrency,
    eager,
)
from rpeg.cost.hardware import Machine
from rpeg.cost.kernels import BF16_BYTES
from rpeg.cost.profiles.layouts import Layout
from rpeg.cost.profiles.shapes import ModelShape
from rpeg.cost.profiles.stage import Profile, attributed
from rpeg.cost.profiles.workload import Rows
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.vocabulary.settings import python_value

CHUNK = 128.0
"""Samples that the embedded engine decodes at a time."""

MOST = 1024.0
"""Sequences that vLLM runs at once unless told otherwise."""

USUAL_MEMORY = 0.9
"""Of a GPU's memory that vLLM takes unless told otherwise."""

PRECISION = {"bf16": "bf16", "fp8": "fp8", "fp32": "bf16"}


@dataclass(frozen=True)
class Rollouts:
    """An engine on a pool."""

    model: ModelShape
    layout: Layout
    embedded: bool
    memory: float | None
    """Share of a GPU's memory, where the plan says one."""
    most: float
    """Sequences of a replica at once."""
    precision: str = "bf16"

    @classmethod
    def of(
        cls, model: ModelShape, layout: Layout, clause: RecordAttr | None, dtype: str
    ) -> Rollouts:
        """Of a line's `engine` clause; the embedded one without."""
        held = {k: python_value(v) for k, v in clause.settings.items()} if clause else {}
        embedded = held.get("name", "embedded") == "embedded"
        memory, most = held.get("memory"), held.get("max_seqs")
        return cls(
            model,
            Layout(dp=layout.dp) if embedded else layout,
            embedded,
            memory if isinstance(memory, float) else None,
            CHUNK if embedded else float(most) if isinstance(most, int) else MOST,
            PRECISION[dtype],
        )

    def serving(self, machine: Machine) -> Serving:
        """One replica."""
        at = self.layout
        return Serving.of(self.model.shape, machine, at.tp, at.pp, self.precision)

    def weights(self, machine: Machine) -> float:
        """Bytes of weights on one process."""
        return float(self.serving(machine).weights) * max(self.model.width / BF16_BYTES, 1.0)

    def software(self, engine: Engine) -> Engine:
        """As this one runs: at most so many sequences; the embedded one is launched by Python."""
        limited = replace(engine, most_sequences=self.most)
        return eager(limited) if self.embedded else limited

    def chunk(self, rows: Rows, on: Machine, engine: Engine, longest: Array | float) -> Array:
        """Seconds of a chunk of the embedded engine: it is filled up to its size, reads each prompt
        once for all of its responses, and the last token of a response is not read again.
        """
        serving, prompt = self.serving(on), rows.prompt.average
        read = serving.prefill(self.most / rows.a_prompt * prompt, prompt)
        step = serving.step(self.most, prompt + longest / 2.0, engine)
        again = larger(np.asarray(longest) - 1.0, 0.0)
        return np.asarray(engine.slowdown * (read + serving.launches(engine) + again * step))

    def profile(self, rows: Rows, machine: Machine, engine: Engine) -> Profile:
        """Of sampling responses to all rows; the slowest replica has the longest."""
        asked = self._requests(rows, rows.response.longest(rows.number))
        software = self.software(engine)

        def seconds(on: Machine) -> float:
            if self.embedded:
                return self._in_chunks(rows, on, software)
            replicas = float(self.layout.dp)
            return drained_time(self.serving(on), asked, rows.response, software, replicas)

        again = rows.number - rows.number / rows.a_prompt if self.embedded else 0.0
        squares = rows.squares - again * rows.prompt.square
        useful = self.model.shape.forward_flops(
            rows.packed if self.embedded else rows.read, squares
        )
        return attributed(seconds, machine, useful, self.layout.processes)

    def cache(self, rows: Rows, machine: Machine, engine: Engine, longest: float) -> float:
        """Bytes of the cache that one process fills, if responses are of `longest` tokens each.

        Where the memory's share is not told, it takes what is needed, of one sequence at least.
        """
        asked = self._requests(rows, longest)
        even = Requests.of(asked.number, asked.prompt, longest)
        serving = self.serving(machine)
        context = rows.prompt.average + longest
        if self.embedded:
            return min(self.most, float(asked.number)) * context * float(serving.cached)
        running = concurrency(serving, even, self.software(engine))
        whole = min(float(running) * context, float(serving.room(engine)))
        return max(whole, context) * float(serving.cached)

    def _requests(self, rows: Rows, longest: float) -> Requests:
        """Of one replica."""
        response = rows.response
        return Requests.of(
            max(rows.number / self.layout.dp, 1.0),
            rows.prompt.average,
            response.average,
            response.square,
            longest,
        )

    def _in_chunks(self, rows: Rows, on: Machine, engine: Engine) -> float:
        """Rectangles of samples, each as long as its longest response; the slowest process has the
        longest of all.
        """
        mine = max(rows.number / self.layout.dp, 1.0)
        size = min(self.most, mine)
        longest = np.array([rows.response.longest(n) for n in (rows.number, size)])
        last, others = self.chunk(rows, on, engine, longest)
        return float(last + (math.ceil(mine / size) - 1.0) * others)
