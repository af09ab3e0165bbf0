"""Grammar rules to syntax tree: a method per rule, called by the parser as it reduces."""

from __future__ import annotations

from typing import TypeVar, cast

from lark import Token, Transformer, v_args

from rpeg.frontend import ast
from rpeg.frontend.literals import decode, whole
from rpeg.ir.text.diagnostics import Position

Node = TypeVar("Node", bound=ast.Node)
Block = tuple[tuple[ast.Statement, ...], Position]


def start_of(token: Token) -> Position:
    """The place of a token's first character."""
    return Position(token.line or 0, token.column or 0)


def end_of(token: Token) -> Position:
    """The place after a token's last character."""
    return Position(token.end_line or 0, token.end_column or 0)


@v_args(inline=True)
class TreeBuilder(Transformer[Token, ast.File]):
    """Takes children as the grammar has them: named terminals, rules, `None` for no option."""

    def start(self, version: Token, *pipelines: ast.Pipeline) -> ast.File:
        return ast.File(str(version), pipelines, at=start_of(version))

    def header(self, version: Token) -> Token:
        return version

    def pipeline(
        self,
        name: Token,
        declarations: tuple[ast.Declaration, ...],
        step: ast.Step,
        expects: tuple[ast.Expect, ...],
        plans: tuple[ast.Plan, ...],
        brace: Token,
    ) -> ast.Pipeline:
        at, end = start_of(name), start_of(brace)
        return ast.Pipeline(str(name), declarations, step, expects, plans, at=at, end=end)

    def param(self, name: Token, value: ast.Literal) -> ast.Param:
        return ast.Param(str(name), value, at=start_of(name))

    def symbol(self, kind: ast.SymbolKind, name: Token, call: ast.Call) -> ast.Symbol:
        return ast.Symbol(kind, str(name), call, at=start_of(name))

    def kind(self, word: Token) -> ast.SymbolKind:
        return cast(ast.SymbolKind, str(word))

    def allow(self, call: ast.Call) -> ast.Allow:
        return ast.Allow(call, at=call.at)

    def step(self, index: Token, count: ast.Literal, block: Block) -> ast.Step:
        body, end = block
        return ast.Step(str(index), count, body, at=start_of(index), end=end)

    def count(self, token: Token) -> ast.Literal:
        kind: ast.LiteralKind = "int" if token.type == "INT" else "param"
        return ast.Literal(kind, str(token), at=start_of(token))

    def block(self, *rest: ast.Statement | Token) -> Block:
        *body, brace = rest
        return cast(Block, (tuple(body), start_of(cast(Token, brace))))

    def statement(
        self, targets: tuple[ast.Ref, ...] | None, call: ast.Call, block: Block | None = None
    ) -> ast.Statement:
        body, end = block or (None, call.end)
        at = targets[0].at if targets else call.at
        return ast.Statement(targets or (), call, body, at=at, end=end)

    def expect(self, name: Token, call: ast.Call) -> ast.Expect:
        return ast.Expect(str(name), call, at=start_of(name))

    def plan(
        self,
        name: Token,
        cluster: Token,
        pools: tuple[ast.Pool, ...],
        places: tuple[ast.Place, ...],
        brace: Token,
    ) -> ast.Plan:
        at, cluster_at, end = start_of(name), start_of(cluster), start_of(brace)
        text = decode(cluster)
        return ast.Plan(str(name), text, pools, places, at=at, cluster_at=cluster_at, end=end)

    def pool(self, name: Token, call: ast.Call) -> ast.Pool:
        return ast.Pool(str(name), call, at=start_of(name))

    def place(self, stage: Token, pool: Token, *clauses: ast.Call) -> ast.Place:
        at, pool_at = start_of(stage), start_of(pool)
        return ast.Place(str(stage), str(pool), clauses, at=at, pool_at=pool_at)

    def call(self, name: Token, args: tuple[ast.Arg, ...], bracket: Token) -> ast.Call:
        return ast.Call(str(name), args, at=start_of(name), end=end_of(bracket))

    def arg(self, name: Token | None, value: ast.Value) -> ast.Arg:
        if name is None:
            return ast.Arg(None, value, at=value.at)
        return ast.Arg(str(name), value, at=start_of(name))

    def list(self, left: Token, items: tuple[ast.Value, ...], right: Token) -> ast.ListOf:
        return ast.ListOf(items, at=start_of(left), end=end_of(right))

    def ref(self, name: Token, version: ast.Index | ast.Window | None) -> ast.Ref:
        return ast.Ref(str(name), version, at=start_of(name))

    def version(
        self, first: Token, sign: Token | None = None, offset: ast.Literal | None = None
    ) -> ast.Index:
        at = start_of(first)
        if first.type == "INT":
            return ast.Index(offset=ast.Literal("int", str(first), at=at), at=at)
        return ast.Index(str(first), cast(ast.Sign, str(sign or "")), offset, at=at)

    def window(self, bracket: Token, low: ast.Index, high: ast.Index) -> ast.Window:
        return ast.Window(low, high, at=start_of(bracket))

    def range(self, low: Token, high: Token) -> ast.Range:
        return ast.Range(whole(low), whole(high), at=start_of(low))

    def number(self, *tokens: Token) -> ast.Literal:
        kind: ast.LiteralKind = "float" if tokens[-1].type == "FLOAT" else "int"
        return ast.Literal(kind, "".join(tokens), at=start_of(tokens[0]))

    def bool(self, token: Token) -> ast.Literal:
        return ast.Literal("bool", str(token), at=start_of(token))

    def parameter(self, token: Token) -> ast.Literal:
        return ast.Literal("param", str(token), at=start_of(token))

    def quantity(self, token: Token) -> ast.Literal:
        return ast.Literal("quantity", str(token), at=start_of(token))

    def string(self, token: Token) -> ast.Literal:
        return ast.Literal("str", str(token), at=start_of(token))

    def _group(self, *nodes: Node) -> tuple[Node, ...]:
        return nodes

    declarations = targets = expects = plans = pools = places = args = items = _group
