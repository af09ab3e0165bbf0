"""Building Megatron-Core's GPTModel so that it answers with logits where completions are."""

from __future__ import annotations

import functools
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    get_cuda_rng_tracker,
)
from megatron.core.transformer import TransformerConfig
from torch import Tensor

from rpeg.runtime.groups import Groups
from rpeg.runtime.megatron.config import padded_vocab
from rpeg.runtime.megatron.spec import layer_spec
from rpeg.runtime.shape import ModelShape


def collection(groups: Groups) -> ProcessGroupCollection:
    """Our groups under the names that Megatron-Core gives them."""
    return ProcessGroupCollection(
        tp=groups.tp,
        pp=groups.pp,
        cp=groups.cp,
        mp=groups.tp_pp,
        dp=groups.dp,
        dp_cp=groups.dp_cp,
        tp_cp=groups.tp,
        embd=groups.ends,
        pos_embd=None,
        ep=groups.alone,
        expt_tp=groups.alone,
        expt_dp=groups.dp_cp,
        tp_ep=groups.tp,
        tp_ep_pp=groups.tp_pp,
        intra_dist_opt=groups.everyone,
    )


@functools.cache
def _globals() -> None:
    """The two process-wide things that Megatron-Core needs even when all groups are handed in: a
    random state around dropout, also where that is 0, and a scratch buffer for gathers.
    """
    get_cuda_rng_tracker().add("model-parallel-rng", 0)
    parallel_state._set_global_memory_buffer()


class ValueHead(torch.nn.Module):
    """A critic's output layer, whole on every tensor-parallel rank."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(
            torch.zeros(1, config.hidden_size, dtype=config.params_dtype)
        )

    def forward(self, hidden: Tensor, **_: Any) -> tuple[Tensor, None]:
        """Values [..., 1] of hidden states [..., hidden], and no bias."""
        return torch.nn.functional.linear(hidden, self.weight), None


class CompletionModel(GPTModel):  # type: ignore[misc]
    """One chunk of a GPTModel; the last computes logits at chosen positions only: they are large.

    A pipeline stage holds `layout.vpp` chunks, by default one.
    """

    def __init__(
        self, config: TransformerConfig, shape: ModelShape, groups: Groups, chunk: int
    ) -> None:
        _globals()
        several = groups.layout.vpp > 1
        last = groups.last_stage and chunk == groups.layout.vpp - 1
        super().__init__(
            config=config,
            transformer_layer_spec=layer_spec(config, groups.pp.rank(), chunk if several else None),
            vocab_size=padded_vocab(shape.vocab, groups.tp.size()),
            max_sequence_length=shape.positions,
            pre_process=groups.first_stage and chunk == 0,
            post_process=last,
            parallel_output=True,
            share_embeddings_and_output_weights=shape.tied,
            position_embedding_type="rope",
            rotary_base=shape.rope_theta,
            rope_scaling=shape.rope_factor is not None,
            rope_scaling_factor=shape.rope_factor or 1.0,
            pg_collection=collection(groups),
            vp_stage=chunk if several else None,
        )
        self._positions: Tensor | None = None
        if last:
            self._set_head(ValueHead(config) if shape.critic else self.output_layer)

    def _set_head(self, head: Any) -> None:
        """Makes `head` the output layer, fed with the selected positions of whole sequences."""
        head.sequence_parallel = False
        head.allreduce_dgrad = self.pg_collection.tp.size() > 1
        head.register_forward_pre_hook(self._select)
        self.output_layer = head

    def forward(self, input_ids: Tensor, positions: Tensor) -> Tensor:
        """Logits [batch, k, vocabulary shard] of `input_ids` [batch, sequence] at `positions`
        [batch, k]; a critic's values [batch, k, 1].

        Earlier pipeline stages answer with their hidden states [sequence, batch, hidden].
        """
        self._positions = positions
        places = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
        out: Tensor = super().forward(input_ids, places, None)
        return out

    def _select(self, _: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Keeps of the hidden states [sequence, batch, hidden] what `forward` was asked for."""
        hidden, *rest = args
        if self.config.sequence_parallel:
            hidden = gather_from_sequence_parallel_region(
                hidden, tensor_parallel_output_grad=False, group=self.pg_collection.tp
            )
        assert self._positions is not None, "set by forward"
        index = self._positions.T.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
        return hidden.gather(0, index), *rest
