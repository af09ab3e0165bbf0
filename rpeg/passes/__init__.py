"""Rewrites of the graph: one pass = one file = one name = one doc page = one test file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdsl.passes import ModulePass


def _bounded_async() -> type[ModulePass]:
    from rpeg.passes.rpeg_bounded_async import RpegBoundedAsyncPass

    return RpegBoundedAsyncPass


def _canonicalize() -> type[ModulePass]:
    from rpeg.passes.rpeg_canonicalize import RpegCanonicalizePass

    return RpegCanonicalizePass


def _eliminate_old_logprob() -> type[ModulePass]:
    from rpeg.passes.rpeg_eliminate_old_logprob import RpegEliminateOldLogprobPass

    return RpegEliminateOldLogprobPass


def _eliminate_reference() -> type[ModulePass]:
    from rpeg.passes.rpeg_eliminate_reference import RpegEliminateReferencePass

    return RpegEliminateReferencePass


def _eliminate_dead_stages() -> type[ModulePass]:
    from rpeg.passes.rpeg_eliminate_dead_stages import RpegEliminateDeadStagesPass

    return RpegEliminateDeadStagesPass


def _annotate_parallelism() -> type[ModulePass]:
    from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass

    return RpegAnnotateParallelismPass


def _fuse_inference() -> type[ModulePass]:
    from rpeg.passes.rpeg_fuse_inference import RpegFuseInferencePass

    return RpegFuseInferencePass


def _schedule() -> type[ModulePass]:
    from rpeg.passes.rpeg_schedule import RpegSchedulePass

    return RpegSchedulePass


def _lower_to_programs() -> type[ModulePass]:
    from rpeg.passes.rpeg_lower_to_programs import RpegLowerToProgramsPass

    return RpegLowerToProgramsPass


PASSES: dict[str, Callable[[], type[ModulePass]]] = {
    "rpeg-bounded-async": _bounded_async,
    "rpeg-canonicalize": _canonicalize,
    "rpeg-eliminate-old-logprob": _eliminate_old_logprob,
    "rpeg-eliminate-reference": _eliminate_reference,
    "rpeg-eliminate-dead-stages": _eliminate_dead_stages,
    "rpeg-annotate-parallelism": _annotate_parallelism,
    "rpeg-fuse-inference": _fuse_inference,
    "rpeg-schedule": _schedule,
    "rpeg-lower-to-programs": _lower_to_programs,
}
"""Name -> what loads the pass. Nothing is imported until it is named."""
