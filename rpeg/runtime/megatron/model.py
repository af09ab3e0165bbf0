"""Building Megatron-Core's GPTModel so that it answers with logits where completions are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    gather_from_sequence_parallel_region,
    get_cuda_rng_tracker,
)
from megatron.core.transformer import TransformerConfig
from torch import Tensor

from rpeg.runtime.batches.examples import ModelInputs
from rpeg.runtime.groups import Groups
from rpeg.runtime.megatron.attention import Sequences
from rpeg.runtime.megatron.rotation import Angles
from rpeg.runtime.megatron.spec import layer_spec
from rpeg.runtime.models.shape import ModelShape
from rpeg.runtime.numerics.products import widens
from rpeg.runtime.numerics.rotary import rotary_table
from rpeg.sharding.decoder import padded_vocab


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


class Answer(NamedTuple):
    """What the last pipeline stage says at the chosen positions."""

    logits: Tensor | None
    """[k, vocabulary shard]; None of a critic."""
    values: Tensor | None
    """[k]; None of a policy."""


class ValueHead(torch.nn.Module):
    """A critic's output layer, or that of the second head of a trunk; whole on every
    tensor-parallel rank.
    """

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
        stage = chunk if groups.layout.vpp > 1 else None
        last = groups.last_stage and chunk == groups.layout.vpp - 1
        super().__init__(
            config=config,
            transformer_layer_spec=layer_spec(config, groups.tp, groups.pp.rank(), stage),
            vocab_size=padded_vocab(shape.vocab, groups.tp.size()),
            max_sequence_length=shape.positions,
            pre_process=groups.first_stage and chunk == 0,
            post_process=last,
            parallel_output=True,
            share_embeddings_and_output_weights=shape.tied,
            position_embedding_type="none",  # our attention rotates by tables of its own
            pg_collection=collection(groups),
            vp_stage=stage,
        )
        self._shape = shape
        self._predicting: Tensor | None = None
        self._values: Tensor | None = None
        self.value_head = ValueHead(config) if last and shape.two_heads else None
        if last:
            self._set_head(ValueHead(config) if shape.critic else self.output_layer)
        widen_products(self)

    def _set_head(self, head: Any) -> None:
        """Makes `head` the output layer, fed with the selected positions of whole sequences."""
        head.sequence_parallel = False
        head.allreduce_dgrad = self.pg_collection.tp.size() > 1
        head.register_forward_pre_hook(self._select)
        self.output_layer = head

    def forward(self, inputs: ModelInputs) -> Tensor | Answer:
        """The answer where completion tokens are predicted.

        Earlier pipeline stages answer with their hidden states [tokens, 1, hidden].
        """
        self._predicting = inputs.predicting
        places = inputs.packing.places
        tables = rotary_table(self._shape, int(places.max()) + 1)
        angles = Angles(*(table.to(places.device)[places] for table in tables))
        out: Tensor = super().forward(
            inputs.input_ids,
            places.unsqueeze(0),
            None,
            packed_seq_params=Sequences(inputs.packing, angles),
        )
        return self._answer(out.squeeze(0)) if self.post_process else out

    def _answer(self, out: Tensor) -> Answer:
        """Of the output layer's [k, vocabulary shard], or [k, 1] of a critic."""
        if self._shape.critic:
            return Answer(None, out.squeeze(-1))
        values, self._values = self._values, None
        return Answer(out, values)

    def _select(self, _: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Keeps of the hidden states [tokens, 1, hidden] what `forward` was asked for; a second
        head reads them here.
        """
        hidden, *rest = args
        if self.config.sequence_parallel:
            hidden = gather_from_sequence_parallel_region(
                hidden, tensor_parallel_output_grad=False, group=self.pg_collection.tp
            )
        assert self._predicting is not None, "set by forward"
        chosen = hidden.index_select(0, self._predicting)
        if self.value_head is not None:
            self._values = self.value_head(chosen)[0].flatten()
        return chosen, *rest


def widen_products(model: torch.nn.Module) -> None:
    """Has Megatron-Core's linear layers multiply in float32 where this host should."""
    for layer in model.modules():
        if isinstance(layer, ColumnParallelLinear | RowParallelLinear) and widens(
            layer.config.params_dtype
        ):
            layer._forward_impl = functools.partial(_widened, layer._forward_impl)


def _widened(
    product: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    **settings: Any,
) -> Tensor:
    """`product` of float32 copies, rounded to the input's type."""
    wide = None if bias is None else bias.float()
    return product(input.float(), weight.float(), bias=wide, **settings).to(input.dtype)
