"""Examples at a size that a test affords: the same pipeline on tiny models, few rows, two steps.

Nothing of the text is edited: its tree gets other numbers where a size stands, and sources of the
test's folder in place of distant ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from rpeg.frontend import ast, load
from rpeg.frontend.parse import parse
from rpeg.frontend.render import render
from tests.unit.interp.pipelines import write_model

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.rpeg"))
STEPS = 2
SIZES = {
    "size": 4,
    "n": 2,
    "max_tokens": 6,
    "max": 6,
    "soft": 2,
    "groups": 2,
    "minibatches": 2,
    "limit": 2,
    "steps": 2,
    "from": 1,
    "horizon": 10,
    "tokens": 6,
    "rank": 2,
    "alpha": 4,
}
"""By setting: the number that stands in place of a greater one."""
CALL = "<call>calc(1+1)</call>"
VOCABULARY = [
    "<pad>", "<eos>", *"0123456789+-*/=(),#: ", CALL, "<result>", "</result>", "</call>", *"<>cal",
]  # fmt: skip


def titles(path: Path) -> list[str]:
    """The pipelines of an example."""
    file, _ = parse(path.read_text(encoding="utf-8"), path.name)
    assert file is not None
    return [pipeline.name for pipeline in file.pipelines]


def small(path: Path, title: str) -> ModuleOp:
    """One pipeline of an example, scaled down."""
    file, _ = parse(path.read_text(encoding="utf-8"), path.name)
    assert file is not None
    chosen = [_pipeline(p) for p in file.pipelines if p.name == title]
    loaded = load(render(replace(file, pipelines=tuple(chosen))), path.name)
    assert loaded.module is not None, [str(d) for d in loaded.diagnostics]
    return loaded.module


def _pipeline(pipeline: ast.Pipeline) -> ast.Pipeline:
    params = {param.name: param.value for param in pipeline.params}
    scale = Scale(params)
    declarations = (
        replace(d, call=scale.declared(d)) if isinstance(d, ast.Symbol) else d
        for d in pipeline.declarations
        if not isinstance(d, ast.Param)
    )
    step = replace(
        pipeline.step,
        count=ast.Literal("int", str(STEPS)),
        body=tuple(map(scale.statement, pipeline.step.body)),
    )
    return replace(pipeline, declarations=tuple(declarations), step=step, expects=(), plans=())


class Scale:
    """Other numbers and sources, with params replaced by what they hold."""

    def __init__(self, params: Mapping[str, ast.Literal]) -> None:
        self._params = params

    def declared(self, symbol: ast.Symbol) -> ast.Call:
        """A declaration's call."""
        call = self._call(symbol.call)
        args = tuple(replace(a, value=self._source(symbol, a)) for a in call.args)
        return replace(call, args=args)

    def statement(self, statement: ast.Statement) -> ast.Statement:
        """A statement, with its region."""
        body = statement.body
        return replace(
            statement,
            call=self._call(statement.call),
            targets=tuple(map(self._ref, statement.targets)),
            body=None if body is None else tuple(map(self.statement, body)),
        )

    def _call(self, call: ast.Call) -> ast.Call:
        return replace(call, args=tuple(map(self._arg, call.args)))

    def _arg(self, arg: ast.Arg) -> ast.Arg:
        value = self._value(arg.value)
        least = SIZES.get(arg.name or "")
        if least is not None and isinstance(value, ast.Literal) and int(value.text) > least:
            value = ast.Literal("int", str(least))
        return replace(arg, value=value)

    def _value(self, value: ast.Value) -> ast.Value:
        match value:
            case ast.Literal(kind="param"):
                return self._params[value.text.removeprefix("$")]
            case ast.Call():
                return self._call(value)
            case ast.Ref():
                return self._ref(value)
            case _:
                return value

    def _ref(self, ref: ast.Ref) -> ast.Ref:
        match ref.version:
            case ast.Window(low=low, high=high) as window:
                return replace(
                    ref, version=replace(window, low=self._index(low), high=self._index(high))
                )
            case ast.Index() as index:
                return replace(ref, version=self._index(index))
            case _:
                return ref

    def _index(self, index: ast.Index) -> ast.Index:
        offset = index.offset
        if offset is not None and offset.kind == "param":
            return replace(index, offset=self._params[offset.text.removeprefix("$")])
        return index

    def _source(self, symbol: ast.Symbol, arg: ast.Arg) -> ast.Value:
        """A source of the test's folder in place of a distant one, a template of known tokens."""
        value = arg.value
        if arg.name == "template":
            return ast.Literal("str", '"{prompt}{response}"')
        if arg.name is not None or not isinstance(value, ast.Literal) or value.kind != "str":
            return value
        text = value.text.strip('"')
        near = {
            "model": "tiny",
            "data": f"{symbol.call.name}.jsonl",
            "tool": text if text.startswith("rule:") else "python:small_tools:echo",
            "verifier": text if text.startswith("rule:") else "rule:math",
        }
        return ast.Literal("str", f'"{near[symbol.kind]}"')


def write_world(folder: Path) -> Path:
    """The folder that the sources of `small` are in."""
    write_model(folder / "tiny", vocab_size=len(VOCABULARY))
    tokenizer = json.loads((folder / "tiny" / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] = {word: k for k, word in enumerate(VOCABULARY)}
    tokenizer["added_tokens"] += [
        {
            **tokenizer["added_tokens"][0],
            "id": VOCABULARY.index(word),
            "content": word,
            "special": False,
        }
        for word in (CALL, "<result>", "</result>", "</call>")
    ]
    (folder / "tiny" / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "small_tools.py").write_text("def echo(text):\n    return text\n")
    for kind in ("prompts", "demos", "pairs"):
        rows = "".join(json.dumps(_row(k)) + "\n" for k in range(8))
        (folder / f"{kind}.jsonl").write_text(rows)
    return folder


def _row(k: int) -> dict[str, str]:
    answer = str(k % 10)
    return {
        "prompt": f"{k}=",
        "answer": answer,
        "completion": answer,
        "chosen": answer,
        "rejected": f"{answer}{answer}",
    }
