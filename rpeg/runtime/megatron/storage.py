"""Weights and optimizer of a trained model on disk, through Megatron-Core's dist_checkpointing.

Keys are `weights.NAME`, `masters.NAME`, `exp_avg.NAME` and `exp_avg_sq.NAME` with Hugging Face
names; tensors are whole there, each process writes and reads its pieces. Megatron-Core's own state
dicts would do for the model, but those of its two optimizers can't be read by one another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing import ShardedTensor
from megatron.core.dist_checkpointing.core import CheckpointingException
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import is_main_replica
from megatron.core.dist_checkpointing.strategies.torch import (
    MCoreSavePlanner,
    TorchDistSaveShardedStrategy,
    mcore_to_pyt_state_dict,
)
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save as save_state_dict

from rpeg.runtime.errors import CheckpointFailure
from rpeg.runtime.megatron.optimizer import Optimizer
from rpeg.runtime.megatron.pieces import Piece, pieces
from rpeg.runtime.megatron.replica import Replica
from rpeg.runtime.state.checkpoint import WEIGHTS
from rpeg.sharding.decoder import Unit

Plain = dict[str, Any]
"""Numbers that are the same on every process."""


def save(folder: Path, replica: Replica, optimizer: Optimizer, plain: Plain) -> None:
    """Writes a model into an empty folder. Collective."""
    state = {"tensors": _tensors(replica, optimizer), **plain, "adam_steps": optimizer.adam_steps}
    dist_checkpointing.save(state, str(folder), _InProcess("torch_dist", 1))


def load(folder: Path, replica: Replica, optimizer: Optimizer) -> Plain:
    """Reads a model that any layout wrote into the parameters; returns `plain`. Collective.

    Raises CheckpointFailure if it is another model's.
    """
    try:
        plain: Plain = dist_checkpointing.load_common_state_dict(str(folder))
        optimizer.restart(plain.pop("adam_steps"))
        state = {"tensors": _tensors(replica, optimizer)}
        dist_checkpointing.load(state, str(folder), validate_access_integrity=False)
    except (CheckpointingException, CheckpointException, KeyError) as error:
        raise CheckpointFailure(f"{folder} holds another model: {error}") from error
    return plain


class _InProcess(TorchDistSaveShardedStrategy):  # type: ignore[misc]
    """Writes the same format without forking: Megatron-Core's own strategy starts a manager and
    workers for every save, which costs more than a small model's bytes and outlives a kill.
    """

    def save(self, sharded_state_dict: dict[str, Any], checkpoint_dir: str) -> None:
        """Every process writes one file, with the pieces of which it has the main copy."""
        by_key = defaultdict(list)
        for piece in nested_values(sharded_state_dict):
            if is_main_replica(piece.replica_id):
                by_key[piece.key].append(piece)
        save_state_dict(
            mcore_to_pyt_state_dict(by_key),
            storage_writer=FileSystemWriter(checkpoint_dir),
            planner=MCoreSavePlanner(flatten_state_dict=False),
        )


def _tensors(replica: Replica, optimizer: Optimizer) -> dict[str, ShardedTensor]:
    """This process's pieces, under numbers: what matters is their keys."""
    number = count()
    return {str(next(number)): tensor for tensor in _sharded(replica, optimizer)}


def _sharded(replica: Replica, optimizer: Optimizer) -> Iterator[ShardedTensor]:
    maker = _Maker(replica)
    for name, parameter in replica.parameters.items():
        yield from maker.make(WEIGHTS, name, parameter.detach().view(-1), 0, replicated=True)
    for master in optimizer.masters():
        flat = optimizer.moments(master)
        if master.is_copy:
            flat["masters"] = master.flat
        for kind, tensor in flat.items():
            name, begin = master.name, master.begin
            yield from maker.make(f"{kind}.", name, tensor, begin, replicated=not optimizer.sharded)


class _Maker:
    """Turns parts of parameters into what dist_checkpointing takes."""

    def __init__(self, replica: Replica) -> None:
        groups = replica.groups
        self._shape = replica.source.shape
        self._whole = dict(self._shape.tensors())
        self._split = replica.map.split
        self._rank = groups.tp.rank()
        self._copy = groups.dp_cp.rank()
        self._units = {unit.name: unit for unit in replica.map.local_units()}
        self._last_stage = groups.last_stage and not groups.first_stage

    def make(
        self, kind: str, name: str, flat: Tensor, begin: int, *, replicated: bool
    ) -> Iterator[ShardedTensor]:
        """Of elements [begin, begin + len(flat)) of a parameter; `replicated`: data-parallel
        replicas hold them too.
        """
        unit = self._units[name]
        copy = self._replica_id(unit, replicated)
        for piece in pieces(self._split, unit, self._rank, flat, begin):
            yield self._tensor(kind, piece, copy)

    def _replica_id(self, unit: Unit, replicated: bool) -> tuple[int, int, int]:
        """All zero on the one process that writes."""
        tied = self._last_stage and self._shape.tied and unit.join == "vocab"
        whole = unit.dim is None
        return (int(tied), self._rank if whole else 0, self._copy if replicated else 0)

    def _tensor(self, kind: str, piece: Piece, copy: tuple[int, int, int]) -> ShardedTensor:
        return ShardedTensor(
            key=kind + piece.source,
            data=piece.data,
            dtype=piece.data.dtype,
            local_shape=tuple(piece.data.shape),
            global_shape=self._whole[piece.source],
            global_offset=piece.offset,
            axis_fragmentations=None,
            replica_id=copy,
        )
