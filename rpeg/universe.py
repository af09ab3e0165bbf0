"""What xDSL's own tools find through the entry point: dialects, passes, front end, target."""

from __future__ import annotations

from xdsl.universe import Universe
from xdsl.utils.frontend import Frontend
from xdsl.utils.target import Target

from rpeg.ir.registry import DIALECTS
from rpeg.passes import PASSES


def _frontend() -> type[Frontend]:
    from rpeg.frontend.plugin import RpegFrontend

    return RpegFrontend


def _target() -> type[Target]:
    from rpeg.frontend.plugin import RpegTarget

    return RpegTarget


RPEG_UNIVERSE = Universe(
    all_dialects=dict(DIALECTS),
    all_passes=dict(PASSES),
    all_frontends={"rpeg": _frontend},
    all_targets={"rpeg": _target},
)
"""Every entry is loaded when it is first named."""
