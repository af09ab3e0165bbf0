"""What a pipeline declares, as things that the interpreter works with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch

from rpeg.interp.environments import Environment
from rpeg.interp.errors import InterpreterError
from rpeg.interp.judge import Judge
from rpeg.interp.lora import Lora
from rpeg.interp.network import Network, initial_tensors, unshared
from rpeg.interp.optimizer import AdamW
from rpeg.interp.tools import Tool, find_tool, user_code
from rpeg.interp.values import Model, Weights
from rpeg.interp.world import World
from rpeg.ir.ops import declare as ops
from rpeg.ir.vocabulary.settings import python_value
from rpeg.runtime.data import DemoData, PairData, PromptData
from rpeg.runtime.models.model_source import ModelSource, open_source
from rpeg.runtime.verifiers import Verifier

_HEADED = ("value", "reward", "process_reward")
"""Roles that answer with a number where a policy has a distribution."""
_ROLES = ("policy", "actor_critic", *_HEADED)
_DATA: Mapping[str, type[PromptData | DemoData | PairData]] = {
    "prompts": PromptData,
    "demos": DemoData,
    "pairs": PairData,
}


class Declarations:
    """Initial weights, data sets, verifiers and states of a pipeline, by name."""

    def __init__(
        self, pipeline: ops.PipelineOp, world: World, seed: int, dtype: torch.dtype
    ) -> None:
        self._world = world
        self._dtype = dtype
        self._seed = seed
        self._sources: dict[str, ModelSource] = {}
        self.things: dict[str, object] = {}
        makers = {
            ops.ModelOp: self._model,
            ops.DataOp: self._data,
            ops.VerifierOp: self._verifier,
            ops.StateOp: self._state,
            ops.ToolOp: self._tool,
        }
        for op in pipeline.body.block.ops:
            if isinstance(op, ops.DeclareOp):
                self.things[op.title] = makers[type(op)](op)

    def _model(self, op: ops.DeclareOp) -> Weights | Judge:
        settings = _settings(op)
        if op.form_name == "generative_reward":
            return self._judge(op, settings)
        if op.form_name not in _ROLES:
            raise InterpreterError.at(
                op, f"the reference interpreter runs {', '.join(_ROLES)} models"
            )
        source, shared = self._source(op), settings.get("shared_layers")
        tensors = initial_tensors(source, self._dtype)
        tensors |= {} if shared is None else unshared(tensors, shared)
        optim, lora = settings.get("optim"), _lora(settings)
        adapters = {} if lora is None else lora.adapters(tensors, self._seed)
        model = Model(
            name=op.title,
            role=op.form_name,
            network=Network(source, self._dtype),
            optim=None if optim is None else _adamw(optim),
            lora=lora,
        )
        return Weights(model, {**tensors, **adapters}, version=0)

    def _judge(self, op: ops.DeclareOp, settings: Mapping[str, Any]) -> Judge:
        source = self._source(op)
        model = Model(
            name=op.title, role="policy", network=Network(source, self._dtype), optim=None
        )
        weights = Weights(model, initial_tensors(source, self._dtype), version=0)
        return Judge(weights, settings["template"], settings["max_tokens"])

    def _source(self, op: ops.DeclareOp) -> ModelSource:
        heads = {"critic": op.form_name in _HEADED, "two_heads": op.form_name == "actor_critic"}
        if op.initial is not None:
            made = ModelSource(self._sources[op.initial].folder, self._seed, **heads)
        else:
            uri = op.uri or ""
            made = open_source(self._world.resolve(uri), uri, self._seed, **heads)
        self._sources[op.title] = made
        return made

    def _data(self, op: ops.DeclareOp) -> PromptData | DemoData | PairData:
        return _DATA[op.form_name](self._world, op.title, source=op.uri or "", **_settings(op))

    def _verifier(self, op: ops.DeclareOp) -> Verifier:
        settings, source = _settings(op), op.uri or ""
        return Verifier(self._world, op.title, kind=op.form_name, source=source, **settings)

    def _tool(self, op: ops.DeclareOp) -> Tool | Environment:
        try:
            if op.form_name == "environment":
                return Environment(op.title, user_code(op.uri or "", self._world.root), op)
            return find_tool(op.uri or "", self._world.root)
        except InterpreterError as error:
            raise InterpreterError.at(op, str(error)) from error

    def _state(self, op: ops.DeclareOp) -> float:
        return float(_settings(op)["init"])


def _settings(op: ops.DeclareOp) -> dict[str, Any]:
    return {name: python_value(held) for name, held in op.settings().items()}


def _lora(settings: Mapping[str, Any]) -> Lora | None:
    held = settings.get("lora")
    return None if held is None else Lora(held["rank"], held["alpha"], held["targets"])


def _adamw(settings: Mapping[str, object]) -> AdamW:
    return AdamW(**cast(Any, {k: v for k, v in settings.items() if k != "kind"}))
