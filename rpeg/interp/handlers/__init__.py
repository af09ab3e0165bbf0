"""What each operation does: one small function per class, one table per family."""

from collections.abc import Mapping

from xdsl.ir import Operation

from rpeg.interp.frame import Handler
from rpeg.interp.handlers import effects, losses, preference, regions, rewards, sampling, updates

HANDLERS: Mapping[type[Operation], Handler] = {
    **sampling.HANDLERS,
    **rewards.HANDLERS,
    **losses.HANDLERS,
    **preference.HANDLERS,
    **updates.HANDLERS,
    **effects.HANDLERS,
    **regions.HANDLERS,
}
"""Every operation that the interpreter runs."""
