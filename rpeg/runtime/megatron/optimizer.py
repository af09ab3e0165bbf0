"""Megatron-Core's data-parallel wrapper and optimizer around a replica."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from torch import Tensor

from rpeg.runtime.layout import AdamW
from rpeg.runtime.megatron.config import DTYPES
from rpeg.runtime.megatron.replica import Replica
from rpeg.runtime.model_time import model_span

MOMENTS = ("exp_avg", "exp_avg_sq")
"""Of the gradient and of its square, as torch names them."""


@dataclass(frozen=True)
class Master:
    """What Adam updates of a parameter on this process."""

    name: str
    """The parameter's."""
    tensor: Tensor
    """Adam's own tensor."""
    begin: int
    """Index of its first element in the parameter, row by row."""
    is_copy: bool
    """It is a float32 copy; otherwise it is, or shares memory with, the parameter."""

    @property
    def flat(self) -> Tensor:
        """Its elements, without gradient."""
        return self.tensor.detach().view(-1)


class Optimizer:
    """AdamW over all processes of a replica's layout: reduced gradients, one global norm.

    In bf16, weights are updated in float32 masters that start from the source's own precision.
    """

    def __init__(self, replica: Replica, settings: AdamW) -> None:
        config, zero = replica.config, replica.groups.layout.zero > 0
        # The loss carries its weights: gradients are summed over processes, never averaged.
        config.calculate_per_token_loss = True
        alone = replica.groups.layout.processes == 1
        config.finalize_model_grads_func = _finished if alone else finalize_model_grads
        settings_of_ddp = DistributedDataParallelConfig(
            grad_reduce_in_fp32=True, use_distributed_optimizer=zero
        )
        self._ddp = [
            DistributedDataParallel(
                config,
                settings_of_ddp,
                module,
                disable_bucketing=chunk > 0,
                pg_collection=replica.collection,
            )
            for chunk, module in enumerate(replica.chunks)
        ]
        replica.wrapped = [*self._ddp]
        self._clip = settings.grad_clip
        self._optimizer = get_megatron_optimizer(
            _optimizer_config(settings, config.params_dtype, zero),
            self._ddp,
            use_gloo_process_groups=False,
            pg_collection=replica.collection,
        )
        (self._part,) = self._optimizer.chained_optimizers
        self.sharded = zero
        """Data-parallel replicas share the state out among them."""
        self._parameters = replica.parameters
        # Megatron-Core only notes who decays; its scheduler, which would heed it, isn't used here.
        for group in self._optimizer.param_groups:
            group["weight_decay"] = settings.weight_decay * group["wd_mult"]
        self._load_masters(replica)
        self.restart(adam_steps=0)

    @torch.no_grad()
    def _load_masters(self, replica: Replica) -> None:
        masters = {master.name: master for master in self.masters() if master.is_copy}
        for name, shard in replica.map.shards(replica.source.read):
            if name in masters:
                flat = masters[name].flat
                flat.copy_(shard.reshape(-1)[masters[name].begin :][: len(flat)])

    def zero_grad(self) -> None:
        """Forgets the gradients: those in the buffer, and the optimizer's names for them."""
        for chunk in self._ddp:
            chunk.zero_grad_buffer()
        self._optimizer.zero_grad()

    def step(self, lr: float) -> float:
        """One step with the gradients in place; returns their global norm before clipping."""
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        norm = None if self._clip > 0 else self._optimizer.get_grad_norm()
        with model_span("optimizer"):
            _, clipped_norm, _ = self._optimizer.step()
        return float(clipped_norm if norm is None else norm)

    def masters(self) -> Iterator[Master]:
        """What Adam updates here, in a fixed order."""
        for name, parameter in self._parameters.items():
            if not self.sharded:
                tensor = getattr(parameter, "main_param", parameter)
                yield Master(name, tensor, 0, is_copy=tensor is not parameter)
            elif parameter in self._part.model_param_group_index_map:
                group, place = self._part.model_param_group_index_map[parameter]
                owned = self._part._get_model_param_range_map(parameter)["param"]
                tensor = self._part.optimizer.param_groups[group]["params"][place]
                yield Master(name, tensor, owned.start, is_copy=tensor.dtype != parameter.dtype)

    def moments(self, master: Master) -> dict[str, Tensor]:
        """Adam's running means of a master's gradient and of its square, flat."""
        state = self._part.optimizer.state[master.tensor]
        return {name: state[name].view(-1) for name in MOMENTS}

    @property
    def adam_steps(self) -> int:
        """Updates that Adam has counted; it counts them apart for each tensor."""
        counts = {int(state["step"]) for state in self._part.optimizer.state.values()}
        assert len(counts) <= 1, f"every step updates every tensor: {counts}"
        return max(counts, default=0)

    def restart(self, adam_steps: int) -> None:
        """Sets moments to zero, for them to be read, as if after so many updates."""
        for master in self.masters():
            state = self._part.optimizer.state[master.tensor]
            state["step"] = torch.tensor(float(adam_steps))
            state |= {name: torch.zeros_like(master.tensor) for name in MOMENTS}


def _finished(*_: Any, **__: Any) -> None:
    """Nothing to reduce: no other process has gradients."""


def _optimizer_config(settings: AdamW, dtype: torch.dtype, zero: bool) -> OptimizerConfig:
    return OptimizerConfig(
        optimizer="adam",
        lr=settings.lr,
        adam_beta1=settings.beta1,
        adam_beta2=settings.beta2,
        weight_decay=settings.weight_decay,
        clip_grad=settings.grad_clip,
        params_dtype=dtype,
        bf16=dtype == DTYPES["bf16"],
        use_distributed_optimizer=zero,
    )
