"""One process's part of a model, and its forward passes over batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from rpeg.runtime.batches.examples import Examples, ModelInputs
from rpeg.runtime.groups import Groups, device
from rpeg.runtime.megatron import shim
from rpeg.runtime.model_time import MegatronTimers, model_span
from rpeg.runtime.models.model_source import ModelSource
from rpeg.runtime.numerics.logits import VocabShard
from rpeg.runtime.terms import Outputs, Said

shim.install()

from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator  # noqa: E402
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes  # noqa: E402

from rpeg.runtime.megatron.config import transformer_config  # noqa: E402
from rpeg.runtime.megatron.model import Answer, CompletionModel, collection  # noqa: E402
from rpeg.runtime.megatron.weights import WeightMap  # noqa: E402
from rpeg.sharding.boxes import Held  # noqa: E402
from rpeg.sharding.decoder import local_name  # noqa: E402

Rows = list[int]
Pass = Callable[[Answer, ModelInputs, Rows], Any]
"""What a pass over micro-batches does with the last stage's answer, its inputs and row numbers."""


class Replica:
    """The shard of a model that this process holds: built, loaded, run forward and backward."""

    def __init__(self, source: ModelSource, groups: Groups, dtype: str) -> None:
        self.source = source
        self.groups = groups
        self.config = transformer_config(source.shape, groups.layout, dtype)
        self.config.timers = MegatronTimers()
        self.collection = collection(groups)
        self.chunks = [
            CompletionModel(self.config, source.shape, groups, chunk).to(device())
            for chunk in range(groups.layout.vpp)
        ]
        """What this pipeline stage holds of the model, input to output."""
        self.wrapped: list[torch.nn.Module] = [*self.chunks]
        """The chunks, inside the data-parallel wrapper once they are trained."""
        self.map = WeightMap(source.shape, groups)
        has_logits = groups.last_stage and not source.shape.critic
        self._vocab = self._vocab_shard() if has_logits else None
        self._mark_shards()
        self.load(source.read)

    def _vocab_shard(self) -> VocabShard:
        width = self.chunks[-1].output_layer.output_size_per_partition
        pad = self.source.tokenizer.pad_id
        return VocabShard(self.groups.tp, width, self.source.shape.vocab, pad)

    def _mark_shards(self) -> None:
        """Says which parameters are shards: the gradient norm counts the others once.

        Megatron-Core does it while it draws weights, which it doesn't do here.
        """
        for unit in self.map.local_units():
            parameter = self.parameters[unit.name]
            if unit.dim is not None and not hasattr(parameter, "tensor_model_parallel"):
                set_tensor_model_parallel_attributes(parameter, True, unit.dim, 1)

    @cached_property
    def parameters(self) -> Mapping[str, torch.nn.Parameter]:
        """This process's parameters under their names in the weight map."""
        return {
            local_name(chunk, name): parameter
            for chunk, module in enumerate(self.chunks)
            for name, parameter in module.named_parameters()
        }

    @torch.no_grad()
    def load(self, read: Callable[[str], Tensor]) -> None:
        """Sets the parameters from whole tensors under Hugging Face names."""
        missing = dict(self.parameters)
        for name, shard in self.map.shards(read):
            missing.pop(name).copy_(shard)
        assert not missing, f"not loaded: {sorted(missing)}"

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The weights, whole, under Hugging Face names. Collective over tp and pp."""
        return self.map.whole(self._local())

    def held_tensors(self) -> Iterator[tuple[Held, Tensor]]:
        """(box of a whole tensor, the part of a parameter here that it is)."""
        return self.map.held(self._local())

    def _local(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.parameters.items()}

    def outputs(self, answer: Answer, inputs: ModelInputs, temperature: float) -> Outputs:
        """What the last stage's answer says."""
        logprob = entropy = values = torch.empty(0, device=inputs.mask.device)
        if answer.logits is not None and self._vocab is not None:
            with model_span("forward"):
                found = self._vocab.logprob(answer.logits, inputs.targets, temperature)
            logprob, entropy = (inputs.rectangle(each) for each in found)
        if answer.values is not None:
            values = inputs.rectangle(answer.values.float())
        return Outputs(inputs.mask, logprob, entropy, values)

    @torch.no_grad()
    def per_token(
        self, examples: Examples, microbatches: Sequence[Rows], said: Sequence[Said]
    ) -> list[Tensor]:
        """Of one pass, for each thing asked for: [samples, tokens] float32 log-probs of the
        completions, or values or scores; zero outside the mask.
        """
        results = [torch.zeros(examples.tokens.shape) for _ in said]

        def collect(answer: Answer, inputs: ModelInputs, rows: Rows) -> None:
            if not rows:
                return
            out = self.outputs(answer, inputs, examples.temperature)
            for result, name in zip(results, said, strict=True):
                result[rows, : inputs.mask.shape[1]] = getattr(out, name).cpu()

        self.run(examples, microbatches, collect, forward_only=True)
        return [self.groups.from_last_stage(result) for result in results]

    def run(
        self,
        examples: Examples,
        microbatches: Sequence[Rows],
        last: Pass,
        *,
        forward_only: bool = False,
    ) -> list[Any]:
        """Runs every micro-batch through all stages; backwards too, from the loss that `last`
        gives.

        Training, `last` answers (loss, report); else anything. Returns the last stage's reports. A
        micro-batch without rows is idle: it takes part with the inputs of `Examples.idle`. Chunked
        stages want `Replica.rounds` micro-batches or a multiple.
        """
        layout = self.groups.layout
        multiple = layout.tp if layout.sp else 1

        def forward_step(batches: Iterator[Rows], model: torch.nn.Module) -> tuple[Any, Any]:
            rows = next(batches)
            inputs = examples.inputs(rows or examples.idle, multiple).to(device())
            with model_span("forward"):
                answer = model(inputs)
            return answer, partial(_finish, last=last, inputs=inputs, rows=rows)

        several = layout.vpp > 1
        schedule = get_forward_backward_func(
            pp_size=layout.pp, vp_size=layout.vpp if several else None
        )
        reports: list[Any] = schedule(
            forward_step_func=forward_step,
            data_iterator=[iter(microbatches) for _ in self.chunks],
            model=self.wrapped,
            num_microbatches=len(microbatches),
            seq_length=0,
            micro_batch_size=0,
            forward_only=forward_only,
            collect_non_loss_data=forward_only,
            pg_collection=self.collection,
            p2p_communicator=self._communicator(),
        )
        return reports

    @property
    def rounds(self) -> int:
        """What the number of micro-batches is a multiple of: chunks take turns in rounds of one
        micro-batch for each pipeline stage.
        """
        return self.groups.layout.pp if self.groups.layout.vpp > 1 else 1

    def _communicator(self) -> P2PCommunicator | None:
        pipelined = self.groups.pp.size() > 1
        return P2PCommunicator(self.groups.pp, self.config) if pipelined else None


def _finish(
    answer: Answer,
    *,
    last: Pass,
    inputs: ModelInputs,
    rows: Rows,
    non_loss_data: bool = False,
) -> Any:
    """Megatron's loss function: of one micro-batch, (loss, tokens to divide by: none, report)."""
    result = last(answer, inputs, rows)
    if non_loss_data:
        return result
    loss, report = result
    return loss, torch.zeros((), dtype=torch.int, device=loss.device), report
