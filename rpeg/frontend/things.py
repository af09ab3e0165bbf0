"""Things, the operands of calls: names are looked up, each mistake is reported once."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.builder import Builder
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue

from rpeg.frontend import ast
from rpeg.frontend.literals import decode
from rpeg.frontend.names import Declared, Messages, Names, Scope, State, hint
from rpeg.frontend.values import Settings, meant_setting, surplus
from rpeg.ir.ops.plan import integers
from rpeg.ir.ops.sampling import GetOp, PoisonOp, StaleOp, value_type
from rpeg.ir.text.sources import Sources
from rpeg.ir.types.attributes import plain
from rpeg.ir.types.values import WeightsType
from rpeg.ir.vocabulary.patterns import Operand
from rpeg.ir.vocabulary.signature import Signature


def spread(
    call: ast.Call, signature: Signature, messages: Messages, missing: list[str]
) -> list[tuple[ast.Arg, Operand]] | None:
    """Each thing of a call with its operand; None, with a message, if one is missing."""
    rest = list(call.things)
    pairs: list[tuple[ast.Arg, Operand]] = []
    for index, spec in enumerate(signature.operands):
        if not rest and not spec.optional:
            messages.error(
                call.at,
                f"{signature.name} needs {spec.pattern.noun} as operand {index + 1} ({spec.name}): "
                f"{signature.call}",
            )
            return None
        taken = rest if spec.many else rest[:1]
        rest = rest[len(taken) :]
        pairs += [(arg, spec) for arg in taken]
    for arg in rest:
        messages.error(arg.at, surplus(arg, signature, missing))
    return pairs


def misplaced(arg: ast.Arg, signature: Signature, spec: Operand) -> str | None:
    """The message for a thing that is not a name."""
    value = arg.value
    match value:
        case ast.Call():
            return (
                f"one statement is one operation: give `{value.name}(...)` a name on a line of its "
                "own, then use the name"
            )
        case ast.Literal(kind="str"):
            declared = spec.pattern.noun.split(" or ")[0]
            return (
                f"{signature.name} takes a name here, not text: declare {declared} at the top and "
                "write its name"
            )
        case ast.Literal():
            known = ", ".join(sorted(signature.settings)) or "no settings"
            return (
                f"{value.text} needs a name: settings are written name=value; {signature.name} has "
                f"{known}"
            )
        case ast.Ref():
            return None
        case _:
            return f"{signature.name} takes {spec.pattern.noun} here"


@dataclass
class Reader:
    """Reads the names that a statement uses."""

    names: Names
    messages: Messages
    settings: Settings
    sources: Sources
    top: Builder
    """Where declared things are read: the start of the step."""
    cursors: dict[str, SSAValue]
    """Each batched data set at its current position."""
    short: bool = False
    """A statement above names too few results: unknown names are probably those."""

    offered: list[str] = field(default_factory=list[str])
    """Settings, as name=value, that messages about unknown names proposed."""

    def __post_init__(self) -> None:
        self.gotten: dict[str, SSAValue] = {}

    def poison(self, builder: Builder) -> SSAValue:
        """A value whose definition has an error."""
        return builder.insert(PoisonOp.make(())).results[0]

    def thing(
        self, arg: ast.Arg, signature: Signature, spec: Operand, scope: Scope, builder: Builder
    ) -> SSAValue:
        """The value of one operand; poison where there is a message."""
        message = misplaced(arg, signature, spec)
        if message is not None:
            self.messages.error(arg.value.at, message)
            return self.poison(builder)
        assert isinstance(arg.value, ast.Ref)
        found = self.reference(arg.value, signature, spec, scope, builder)
        return found if found is not None else self.poison(builder)

    def reference(
        self,
        ref: ast.Ref,
        signature: Signature,
        spec: Operand,
        scope: Scope,
        builder: Builder,
    ) -> SSAValue | None:
        """The value that a name stands for."""
        if not scope.holds(ref.name):
            self._unknown(ref, signature, scope)
            return None
        binding = scope.find(ref.name)
        match binding:
            case None:
                return None
            case State():
                return self._version(ref, binding, signature, builder)
            case Declared() if ref.version is None:
                return self._declared(ref.name, binding, spec)
            case SSAValue() if ref.version is None:
                return binding
            case _:
                self.messages.error(
                    ref.at, f"`{ref.name}` never changes, so it has no version: write {ref.name}"
                )
                return None

    def _declared(self, name: str, declared: Declared, spec: Operand) -> SSAValue:
        if name in self.cursors and spec.pattern.includes("cursor"):
            return self.cursors[name]
        if name not in self.gotten:
            held = value_type(declared.kind, declared.form, name)
            op = self.top.insert(GetOp.of(name, held))
            op.location = self.sources.location(self.names.given[name])
            op.results[0].name_hint = name
            self.gotten[name] = op.results[0]
        return self.gotten[name]

    def _unknown(self, ref: ast.Ref, signature: Signature, scope: Scope) -> None:
        word, later = signature.setting_with_word(ref.name), self.names.later.get(ref.name)
        if ref.name in self.names.given:
            given = self.names.given[ref.name]
            self.messages.error(
                ref.at,
                f"`{ref.name}` is not visible here: it is defined inside a region, at {given}",
            )
        elif word is not None:
            self.messages.error(ref.at, f"`{ref.name}` is a choice: write {word}={ref.name}")
        elif later is not None:
            self.messages.once(
                ref.name, ref.at, f"`{ref.name}` is used before its definition at {later}"
            )
        elif (meant := meant_setting(ref, signature)) is not None:
            self.offered.append(meant)
            self.messages.error(ref.at, f"a setting is written name=value: {meant}")
        elif not self.short:
            near = hint(ref.name, scope.visible())
            self.messages.once(ref.name, ref.at, f"`{ref.name}` is not defined{near}")

    # ---- versions

    def _version(
        self, ref: ast.Ref, state: State, signature: Signature, builder: Builder
    ) -> SSAValue | None:
        i = self.names.index
        if ref.version is None:
            self.messages.error(
                ref.at,
                f"`{ref.name}` changes every step: write {ref.name}@{i} (as this step starts) or "
                f"{ref.name}@{i}+1 (as it ends)",
            )
            return None
        window = ref.version if isinstance(ref.version, ast.Window) else None
        low = self.offset(window.low if window else ref.version)  # type: ignore[arg-type]
        high = self.offset(window.high) if window else low
        if low is None or high is None:
            return None
        if high == 1 and window is None:
            return self._next(ref, state)
        if high > 0:
            self.messages.error(
                ref.at,
                f"the newest version a step can read is {ref.name}@{i}+1, and only after it is "
                "made",
            )
            return None
        if low > high:
            self.messages.error(ref.at, f"the window {ref} is empty: the older version comes first")
            return None
        return state.start if low == 0 else self._old(ref, state, signature, (-high, -low), builder)

    def _next(self, ref: ast.Ref, state: State) -> SSAValue | None:
        if state.after is None and ref.name not in self.names.vague:
            later = self.names.later.get(ref.name)
            line = f" (line {later.line})" if later else ""
            self.messages.error(
                ref.at,
                f"{ref.name}@{self.names.index}+1 is read before the statement that makes it{line}"
                ": move this line below it",
            )
        return state.after

    def _old(
        self,
        ref: ast.Ref,
        state: State,
        signature: Signature,
        lag: tuple[int, int],
        builder: Builder,
    ) -> SSAValue | None:
        if not isinstance(state.start.type, WeightsType):
            self.messages.error(
                ref.at,
                f"`{ref.name}` is a state, which a step reads at @{self.names.index} only: "
                f"{signature.name} reads {ref.name}@{self.names.index}",
            )
            return None
        window = {"low": plain(lag[0]), "high": plain(lag[1])}
        op = StaleOp.make([state.start], window, location=self.sources.location(ref.at))
        builder.insert(op).results[0].name_hint = ref.name
        return op.results[0]

    def offset(self, index: ast.Index) -> int | None:
        """What a version adds to the step's index; None, with a message, if it is of another."""
        i = self.names.index
        if index.base != i:
            self.messages.once(
                f"@{index.base}",
                index.at,
                f"`{index}` is not a version of this step: it counts with `{i}`, as in @{i}, "
                f"@{i}+1, @{i}-2",
            )
            return None
        if index.offset is None:
            return 0
        size = self.settings.whole(index.offset)
        return None if size is None else -size if index.sign == "-" else size


def record_things(
    call: ast.Call, signature: Signature, messages: Messages, missing: list[str]
) -> dict[str, Attribute]:
    """The things of a record (a range, a stage, a pool, a file), as attributes by operand name;
    `missing` loses settings that a message offers.
    """
    pairs = spread(call, signature, messages, missing)
    found = (
        (spec.name, _record_thing(arg, signature, spec, messages)) for arg, spec in pairs or ()
    )
    return {name: value for name, value in found if value is not None}


def _record_thing(
    arg: ast.Arg, signature: Signature, spec: Operand, messages: Messages
) -> Attribute | None:
    value = arg.value
    if spec.pattern.includes("range"):
        if isinstance(value, ast.Range):
            return integers(value.low, value.high)
        messages.error(arg.at, f"{signature.name} takes a range such as 0..39, both ends included")
        return None
    if spec.pattern.includes("uri"):
        return source_attribute(arg, signature, spec, messages)
    if isinstance(value, ast.Ref) and value.version is None:
        return StringAttr(value.name)
    messages.error(arg.at, f"{signature.name} takes the name of a {spec.pattern.noun} here")
    return None


def source_attribute(
    arg: ast.Arg, signature: Signature, spec: Operand, messages: Messages
) -> Attribute | None:
    """The source of a declaration: text."""
    if isinstance(arg.value, ast.Literal) and arg.value.kind == "str":
        return StringAttr(decode(arg.value.text))
    message = misplaced(arg, signature, spec) or f"{signature.name} takes {spec.pattern.noun} here"
    messages.error(arg.value.at, message)
    return None
