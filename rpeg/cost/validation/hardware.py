"""Single kernels: matrix products and streams, as micro-benchmarks measure them."""

from __future__ import annotations

from rpeg.cost.kernels import matmul
from rpeg.cost.validation.machines import machine
from rpeg.cost.validation.rows import Row, Unknown, as_number

FIELDS = ("hardware.gpu", "shape")

STREAMS = ("copy", "mul", "add", "triad", "dot")

UNITS = {"gemm": "TFLOP/s", **dict.fromkeys(STREAMS, "TB/s")}
"""The unit of each quantity as it is predicted."""


def quantity(row: Row, name: str) -> float:
    """TFLOP/s of a product, or TB/s of a stream. Raises Unknown."""
    known = machine(row)
    if name in STREAMS:
        return known.memory_rate / 1e12
    if name != "gemm":
        raise Unknown("a fact of the hardware, which the model is given")
    shape = row.fields.get("shape")
    sides = [as_number(side) for side in shape] if isinstance(shape, list) else []
    if len(sides) != 3 or None in sides:
        raise Unknown("no shape of three sides")
    m, n, k = (side or 1.0 for side in sides)
    precision = "fp8" if "fp8" in row.text("fact") else "bf16"
    return 2.0 * m * n * k / float(matmul(known, precision, m, k, n)) / 1e12
