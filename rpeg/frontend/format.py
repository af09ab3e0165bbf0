"""The formatter: canonical text that keeps comments and groups of lines."""

from __future__ import annotations

from rpeg.frontend.parse import normalised, parse
from rpeg.frontend.render import render
from rpeg.frontend.trivia import Trivia
from rpeg.ir.text.diagnostics import DiagnosticsError


def format_source(text: str, filename: str) -> str:
    """The canonical form of a text; that of a canonical text is the text itself.

    Raises:
        DiagnosticsError: the text doesn't parse.
    """
    file, diagnostics = parse(text, filename)
    if file is None:
        raise DiagnosticsError(diagnostics)
    return render(file, Trivia.of(normalised(text)))
