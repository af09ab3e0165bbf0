"""Syntax tree to canonical text; with trivia, the formatter."""

from __future__ import annotations

from collections.abc import Iterable

from rpeg.frontend import ast
from rpeg.frontend.layout import WIDTH, bracketed, one_a_line
from rpeg.frontend.literals import encode
from rpeg.frontend.trivia import Trivia
from rpeg.ir.text.diagnostics import Position


def render(file: ast.File, trivia: Trivia | None = None) -> str:
    """The canonical text of a tree.

    Trivia belong to the text that the tree was read from, and stay where they are. Without them
    there are no comments, and blank lines only between the sections.
    """
    printer = _Printer(trivia or Trivia())
    printer.file(file)
    return "\n".join(printer.lines) + "\n"


class _Printer:
    """Collects lines. `_indent` is that of the current block."""

    def __init__(self, trivia: Trivia) -> None:
        self.lines: list[str] = []
        self._trivia = trivia
        self._indent = 0
        self._first = True  # nothing stands yet in the block, so no blank line either

    def file(self, file: ast.File) -> None:
        self._above(file.at)
        self._put(f"rpeg {file.version}", file.at)
        for pipeline in file.pipelines:
            self._pipeline(pipeline)
        for comment in self._trivia.rest():
            self._comment(comment.text, self._trivia.blank_above(comment.at))

    def _pipeline(self, pipeline: ast.Pipeline) -> None:
        self._above(pipeline.at, section=True)
        self._open(f"pipeline {pipeline.name} {{", pipeline.at)
        for declaration in pipeline.declarations:
            self._declaration(declaration)
        self._step(pipeline.step)
        for number, expect in enumerate(pipeline.expects):
            self._above(expect.at, section=number == 0)
            self._call(f"expect {expect.name} = ", expect.call)
        for plan in pipeline.plans:
            self._plan(plan)
        self._close(pipeline.end)

    def _declaration(self, declaration: ast.Declaration) -> None:
        self._above(declaration.at)
        match declaration:
            case ast.Param():
                self._put(f"param {declaration.name} = {declaration.value}", declaration.at)
            case ast.Symbol():
                self._call(f"{declaration.kind} {declaration.name} = ", declaration.call)
            case ast.Allow():
                self._call("allow ", declaration.call)

    def _step(self, step: ast.Step) -> None:
        self._above(step.at, section=True)
        self._open(f"step {step.index} < {step.count} {{", step.at)
        self._statements(step.body)
        self._close(step.end)

    def _statements(self, body: Iterable[ast.Statement]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, statement: ast.Statement) -> None:
        self._above(statement.at)
        targets = ", ".join(map(str, statement.targets))
        prefix = f"{targets} = " if targets else ""
        if statement.body is None:
            self._call(prefix, statement.call)
            return
        self._call(prefix, statement.call, " {")
        self._enter()
        self._statements(statement.body)
        self._close(statement.end)

    def _plan(self, plan: ast.Plan) -> None:
        self._above(plan.at, section=True)
        self._open(f"plan {plan.name} on {encode(plan.cluster)} {{", plan.at)
        for pool in plan.pools:
            self._above(pool.at)
            self._call(f"pool {pool.name} = ", pool.call)
        for place in plan.places:
            self._place(place)
        self._close(plan.end)

    def _place(self, place: ast.Place) -> None:
        self._above(place.at)
        head = f"{place.stage} on {place.pool}"
        if not place.clauses:
            self._put(head, place.at)
            return
        first, end = place.clauses[0].at, place.clauses[-1].end
        flat = f"{head}, {', '.join(map(str, place.clauses))}"
        if len(flat) + self._indent <= WIDTH and not self._trivia.within(place.at, end):
            self._put(flat, end)
            return
        self._line(f"{head},{self._trivia.trailing(place.at.line, before=first)}")
        self.lines += one_a_line(place.clauses, "", self._indent + 2, self._trivia, end)
        self.lines[-1] += self._trivia.trailing(end.line)

    def _call(self, prefix: str, call: ast.Call, suffix: str = "") -> None:
        *lines, last = bracketed(prefix, call, suffix, self._indent, self._trivia)
        self.lines += [*lines, last + self._trivia.trailing(call.end.line)]
        self._first = False

    def _above(self, place: Position, section: bool = False) -> None:
        """Comments above what comes next, and blank lines; a section has one in any case."""
        comments = self._trivia.before(place)
        places = [*(c.at for c in comments), place]
        blank = [self._trivia.blank_above(p) for p in places]
        if section and not any(blank):
            blank[0] = True
        for comment, wanted in zip(comments, blank, strict=False):
            self._comment(comment.text, wanted)
        self._blank_line(blank[-1])

    def _comment(self, text: str, blank: bool) -> None:
        self._blank_line(blank)
        self._line(text)

    def _blank_line(self, wanted: bool) -> None:
        if wanted and not self._first:
            self.lines.append("")

    def _put(self, text: str, place: Position) -> None:
        """A line, with the comment that ends it at this place of the text."""
        self._line(text + self._trivia.trailing(place.line))

    def _line(self, text: str) -> None:
        self.lines.append(" " * self._indent + text)
        self._first = False

    def _open(self, text: str, place: Position) -> None:
        self._put(text, place)
        self._enter()

    def _enter(self) -> None:
        self._indent += 2
        self._first = True

    def _close(self, place: Position) -> None:
        for comment in self._trivia.before(place):
            self._comment(comment.text, self._trivia.blank_above(comment.at))
        self._indent -= 2
        self._put("}", place)
