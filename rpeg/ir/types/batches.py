"""Types of batches: so many rows of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from rpeg.ir.types.flow import FlowType


class _Batch(FlowType):
    """So many rows of a data set: `<64>`."""

    def __init__(self, size: int | IntAttr) -> None:
        super().__init__(size)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (IntAttr(parser.parse_integer(allow_boolean=False, allow_negative=False)),)

    def print_parameters(self, printer: Printer) -> None:
        (size,) = self.parameters
        assert isinstance(size, IntAttr)
        printer.print_string(f"<{size.data}>")


@irdl_attr_definition(init=False)
class PromptsType(_Batch):
    """A batch of prompts: `!rpeg.prompts<64>`."""

    name = "rpeg.prompts"
    KIND: ClassVar[str] = "prompts"
    size: IntAttr = param_def(converter=IntAttr.get)


@irdl_attr_definition(init=False)
class DemosType(_Batch):
    """A batch of demonstrations: `!rpeg.demos<64>`."""

    name = "rpeg.demos"
    KIND: ClassVar[str] = "demos"
    size: IntAttr = param_def(converter=IntAttr.get)


@irdl_attr_definition(init=False)
class PairsType(_Batch):
    """A batch of preferences, a chosen and a rejected response each: `!rpeg.pairs<64>`."""

    name = "rpeg.pairs"
    KIND: ClassVar[str] = "pairs"
    size: IntAttr = param_def(converter=IntAttr.get)


BATCHES: tuple[type[PromptsType | DemosType | PairsType], ...] = (
    PromptsType,
    DemosType,
    PairsType,
)
"""Every one of them."""
