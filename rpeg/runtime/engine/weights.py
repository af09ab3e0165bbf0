"""The register between a trainer and its engines: the newest weights, and a checksum to know them
by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from rpeg.runtime.interfaces import NamedTensors, SeededHost, WeightSource
from rpeg.runtime.models.model_source import HEAD
from rpeg.runtime.publish.digest import checksum

if TYPE_CHECKING:
    from rpeg.runtime.models.export import Exportable


class LatestWeights:
    """The newest published weights of one model, whole, on every process."""

    def __init__(self, run: SeededHost, model: Exportable) -> None:
        self.run = run
        self.name = model.name
        self.version = -1
        """Version of the weights held; -1 before the first publish."""
        self.checksum = ""
        self._weights: dict[str, Tensor] = {}
        run.watch(self)

    def publish(self, source: WeightSource) -> None:
        """Takes a copy of the trainer's weights. Collective over its tp and pp groups."""
        with self.run.clock.stage(f"publish_{self.name}"):
            # The values of a second head are the trainer's own: nothing samples from them.
            named = source.named_tensors()
            self._weights = {name: tensor for name, tensor in named if name != HEAD}
            self.version = source.version
            self.checksum = checksum(self._weights.items())

    def read(self) -> NamedTensors:
        """(Hugging Face name, whole tensor) of the weights published last."""
        return iter(self._weights.items())
