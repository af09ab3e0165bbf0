"""Megatron-Core's data-parallel wrapper and optimizer around a replica."""

from __future__ import annotations

from collections.abc import Iterator
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


class Optimizer:
    """AdamW over all processes of a replica's layout: reduced gradients, one global norm.

    In bf16, weights are updated in float32 masters that start from the source's own precision.
    """

    def __init__(self, replica: Replica, settings: AdamW) -> None:
        config, zero = replica.config, replica.groups.layout.zero > 0
        # The loss carries its weights: gradients are summed over processes, never averaged.
        config.calculate_per_token_loss = True
        config.finalize_model_grads_func = finalize_model_grads
        self._ddp = DistributedDataParallel(
            config,
            DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=zero),
            replica.module,
            pg_collection=replica.collection,
        )
        replica.wrapped = self._ddp
        self._clip = settings.grad_clip
        self._optimizer = get_megatron_optimizer(
            _optimizer_config(settings, config.params_dtype, zero),
            [self._ddp],
            use_gloo_process_groups=False,
            pg_collection=replica.collection,
        )
        (self._part,) = self._optimizer.chained_optimizers
        # Megatron-Core only notes who decays; its scheduler, which would heed it, isn't used here.
        for group in self._optimizer.param_groups:
            group["weight_decay"] = settings.weight_decay * group["wd_mult"]
        self._load_masters(replica)

    @torch.no_grad()
    def _load_masters(self, replica: Replica) -> None:
        parameters = dict(replica.module.named_parameters())
        for name, shard in replica.map.shards(replica.source.read):
            master = getattr(parameters[name], "main_param", None)
            if master is not None and master.shape == shard.shape:
                master.copy_(shard)

    def zero_grad(self) -> None:
        """Forgets the gradients: those in the buffer, and the optimizer's names for them."""
        self._ddp.zero_grad_buffer()
        self._optimizer.zero_grad()

    def step(self, lr: float) -> float:
        """One step with the gradients in place; returns their global norm before clipping."""
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        norm = None if self._clip > 0 else self._optimizer.get_grad_norm()
        _, clipped_norm, _ = self._optimizer.step()
        return float(clipped_norm if norm is None else norm)

    def masters(self) -> Iterator[Tensor]:
        """The tensors that the inner optimizer updates: this process's, in a fixed order."""
        for group in self._part.optimizer.param_groups:
            yield from group["params"]

    def state_dict(self) -> dict[str, Any]:
        """Moments, step counts and master weights of this process."""
        return {
            "inner": self._part.optimizer.state_dict(),
            "masters": [master.detach() for master in self.masters()],
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts `state_dict` back."""
        self._part.optimizer.load_state_dict(state["inner"])
        for master, saved in zip(self.masters(), state["masters"], strict=True):
            master.copy_(saved)


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
