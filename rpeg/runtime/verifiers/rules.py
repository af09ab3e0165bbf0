"""The built-in verifiers: `rule:exact_match`, `rule:answer_tag`, `rule:math`, `rule:overlong`.

Each is a pure function of one response. They run inside the training process, so each takes time
linear in the text and evaluates nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from rpeg.runtime.errors import VerifierFailure


class Response(NamedTuple):
    """One completion, as a rule sees it."""

    prompt: str
    completion: str
    answer: str | None
    finished: bool
    """Ended with a stop token rather than at the token limit."""
    tokens: int


Rule = Callable[[Response], float]


def find_rule(name: str, soft: int | None, max_tokens: int | None) -> Rule:
    """The rule `name`; `soft` and `max_tokens` are the bounds of `overlong`, in tokens."""
    if name == "overlong":
        return overlong(soft, max_tokens)
    if name not in _RULES:
        known = ", ".join(f"`rule:{rule}`" for rule in [*_RULES, "overlong"])
        raise VerifierFailure(f"there is no `rule:{name}`; there is {known}")
    return _RULES[name]


def exact_match(response: Response) -> float:
    """1 if the completion is finished and is the answer, up to space around it."""
    return float(response.finished and response.completion.strip() == _answer(response).strip())


def answer_tag(response: Response) -> float:
    """1 if the completion holds exactly one `<answer>...</answer>` with something in it."""
    found = _ANSWER.findall(response.completion)
    opened = response.completion.count("<answer>")
    return float(len(found) == opened == 1 and bool(found[0].strip()))


def math(response: Response) -> float:
    """1 if the completion's final value is the answer's.

    The final value is the last `\\boxed{...}`, else the text after the last `####`, else the last
    number. Values are equal as rational numbers (`0.5`, `1/2`, `\\frac{1}{2}`, `1,000`), else as
    LaTeX without spaces. Nothing is simplified: `\\sqrt{4}` is not 2.
    """
    value = _final(response.completion)
    expected = _final(_answer(response), otherwise=_answer(response))
    return float(value is not None and expected is not None and _equal(value, expected))


def overlong(soft: int | None, max_tokens: int | None) -> Rule:
    """DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13), in [-1, 0].

    0 up to `soft` tokens, then linear to -1 at `max_tokens`.
    """
    if soft is None or max_tokens is None or not 0 <= soft < max_tokens:
        raise VerifierFailure(
            "`rule:overlong` needs soft= and max= in tokens, with 0 <= soft < max"
        )
    return lambda response: -min(1.0, max(0.0, (response.tokens - soft) / (max_tokens - soft)))


_RULES: dict[str, Rule] = {"exact_match": exact_match, "answer_tag": answer_tag, "math": math}

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_NUMBER = re.compile(r"-?\d[\d,]{0,40}(?:\.\d{1,40})?(?:/\d{1,40})?")
_FRACTION = re.compile(r"(-?)\\frac\{(-?\d{1,40})\}\{(-?\d{1,40})\}")
_RATIONAL = re.compile(r"[-+]?\d{1,40}(\.\d{1,40})?|[-+]?\.\d{1,40}|[-+]?\d{1,40}/\d{1,40}")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def _answer(response: Response) -> str:
    if response.answer is None:
        raise VerifierFailure(
            f"a row has no `answer` to compare with: prompt {response.prompt[:60]!r}"
        )
    return response.answer


def _final(text: str, otherwise: str | None = None) -> str | None:
    boxed = _last_boxed(text)
    if boxed is not None:
        return boxed
    if "####" in text:
        return text.rsplit("####", 1)[1]
    if otherwise is not None:
        return otherwise
    numbers = _NUMBER.findall(text)
    return numbers[-1] if numbers else None


def _last_boxed(text: str) -> str | None:
    """The text between the braces of the last `\\boxed{`; None without one, or one left open."""
    _, marker, rest = text.rpartition("\\boxed{")
    depth = 1
    for place, character in enumerate(rest if marker else ""):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[:place]
    return None


def _equal(a: str, b: str) -> bool:
    a, b = _plain(a), _plain(b)
    numbers = _number(a), _number(b)
    return a == b if None in numbers else numbers[0] == numbers[1]


def _plain(text: str) -> str:
    """LaTeX without dollars, spaces, sizes of brackets and thousands separators."""
    text = re.sub(r"\$|\s|\\left|\\right|\\!|\\,|\\;", "", text)
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").rstrip(".")
    return _THOUSANDS.sub("", text)


def _number(text: str) -> Fraction | None:
    if match := _FRACTION.fullmatch(text):
        sign, above, below = match.groups()
        return _divide(int(above) * (-1 if sign else 1), int(below))
    if not _RATIONAL.fullmatch(text):
        return None
    above, _, below = text.partition("/")
    return _divide(Fraction(above), int(below or "1"))


def _divide(above: Fraction | int, below: int) -> Fraction | None:
    return Fraction(above) / below if below else None
