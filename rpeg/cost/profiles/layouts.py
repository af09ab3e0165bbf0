"""How a stage is spread over the processes of its pool, as the stage formulas take it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rpeg.cost.plans import FULL, NO_RECOMPUTE, SELECTIVE, Plans
from rpeg.cost.profiles.workload import Rows
from rpeg.ir.base import RpegOp
from rpeg.ir.layout import width_of, zero_of
from rpeg.ir.ops.movement import clause_of, model_of, pool_of
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.stages import stages
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.vocabulary.settings import python_value

RECOMPUTE = {"none": NO_RECOMPUTE, "selective": SELECTIVE, "full": FULL}


@dataclass(frozen=True)
class Layout:
    """The widths of a `par` clause."""

    tp: int = 1
    pp: int = 1
    vpp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    sp: bool = False
    zero: int = 0
    recompute: str = "none"

    @classmethod
    def of(cls, par: RecordAttr) -> Layout:
        """Of a clause."""
        widths = {axis: width_of(par, axis) for axis in ("tp", "pp", "vpp", "dp", "cp", "ep")}
        sp = python_value(par.settings.get("sp")) is True
        recompute = str(python_value(par.settings.get("recompute")) or "none")
        return cls(**widths, sp=sp, zero=zero_of(par), recompute=recompute)

    @property
    def processes(self) -> int:
        """Processes that it takes."""
        return self.tp * self.pp * self.cp * self.dp

    def plans(self, rows: Rows, bound: Bound, trained: float) -> Plans:
        """The rows as micro-batches of equally many tokens, as few as the bound allows.

        A sequence counts with the mean length S2 / S1 that attention sees, so that both tokens
        and attention's work are those of the rows. A prompt is packed once in a micro-batch.
        """
        count = max(bound.parts(rows, self.dp), self.pp if self.vpp > 1 else 1)
        tokens = rows.packed_in(count)
        seq = rows.squares / tokens
        attended = rows.number / self.dp / count
        return self.split(tokens, tokens / self.dp / count, seq, trained, attended)

    def split(
        self, tokens: float, micro: float, seq: float, trained: float, attended: float | None = None
    ) -> Plans:
        """So many tokens in micro-batches of `micro` tokens, all in sequences of `seq`; attention
        goes over `attended` of them.
        """
        return Plans.of(
            batch=tokens / seq,
            micro=micro / seq,
            seq=seq,
            tp=self.tp,
            pp=self.pp,
            vpp=self.vpp,
            dp=self.dp,
            cp=self.cp,
            ep=self.ep,
            sp=float(self.sp),
            zero=self.zero,
            recompute=RECOMPUTE[self.recompute],
            trained=trained,
            attended=attended,
        )


@dataclass(frozen=True)
class Bound:
    """What one micro-batch holds at most; without either, a whole minibatch."""

    in_tokens: int | None = None
    in_rows: int | None = None

    @classmethod
    def of(cls, mb: RecordAttr | None) -> Bound:
        """Of a clause `mb(tokens=N)` or `mb(seqs=N)`."""
        held = {k: python_value(v) for k, v in mb.settings.items()} if mb is not None else {}
        tokens, rows = held.get("tokens"), held.get("seqs")
        return cls(
            tokens if isinstance(tokens, int) else None, rows if isinstance(rows, int) else None
        )

    def parts(self, rows: Rows, share: int) -> int:
        """Micro-batches that the rows take, split `share` ways. Its tokens are those of the rows,
        whether a prompt is packed or not; a longer row goes alone.
        """
        if self.in_tokens is not None:
            return math.ceil(rows.read / share / max(float(self.in_tokens), rows.average))
        if self.in_rows is not None:
            return math.ceil(rows.number / share / self.in_rows)
        return 1

    def at_most(self, rows: Rows, share: int, longest: float) -> float:
        """Tokens of the fullest micro-batch, if rows are of `longest` tokens each; `share` is the
        width that they are split by.
        """
        whole = max(math.ceil(rows.number / share), 1) * longest
        if self.in_tokens is not None:
            return min(max(float(self.in_tokens), longest), whole)
        if self.in_rows is not None:
            return min(self.in_rows * longest, whole)
        return whole


def layout_of(stage: RpegOp) -> Layout:
    """A stage's own layout; else that of its model's update, or of the first of its pool."""
    near = sorted(_around(stage), key=lambda op: (not _trains(op, stage), op is not stage))
    found = (clause_of(op, "par") for op in (stage, *near))
    return next((Layout.of(clause) for clause in found if clause is not None), Layout())


def bound_of(stage: RpegOp) -> Bound:
    """A stage's own bound on micro-batches; else that of its model's update."""
    trained = (op for op in stages(stage).values() if _trains(op, stage))
    found = (clause_of(op, "mb") for op in (stage, *trained))
    return Bound.of(next((clause for clause in found if clause is not None), None))


def _around(stage: RpegOp) -> list[RpegOp]:
    return [op for op in stages(stage).values() if pool_of(op) == pool_of(stage)]


def _trains(op: RpegOp, stage: RpegOp) -> bool:
    return isinstance(op, UpdateOp) and op.makes() == model_of(stage)
