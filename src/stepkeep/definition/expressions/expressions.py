"""Compiles and evaluates `${{ … }}`: CEL expressions over a run's input, its steps' results and the run itself.

Problems that the text shows are reported at compilation, when a definition is published. Evaluation is limited and ends
in a plain JSON value or an ExpressionError. `cel_binding` wraps CEL itself. The linter compiles. The kernel's
conditions and the workers evaluate, from any thread: CEL holds the interpreter's lock, and nothing here changes after
compilation.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from stepkeep.definition.expressions import cel_binding
from stepkeep.definition.expressions.cel_binding import CelRefused, Program
from stepkeep.definition.expressions.limits import (
    CostBudget,
    Traits,
    check_cost,
    data_weight,
    pattern_cost,
    pattern_program,
    simple_cost,
    text_cost,
    traits_of,
)
from stepkeep.definition.expressions.scope import MAX_FINDINGS, Resolved, Scope, StaticPath, Tree, bad_map_key, resolve
from stepkeep.definition.expressions.syntax_tree import Call, MapOf, Node, decode, walk
from stepkeep.definition.expressions.template_text import OPENING, Embedded, Unclosed, split
from stepkeep.definition.expressions.words import compile_findings, evaluation_words
from stepkeep.definition.findings import Finding
from stepkeep.definition.text.document import nearest
from stepkeep.kernel.errors import ExpressionError

__all__ = [
    "Expression",
    "InvalidExpression",
    "Json",
    "Scope",
    "Template",
    "compile_expression",
    "compile_template",
]

MAX_SOURCE: Final = 4_096
MAX_KEPT: Final = 4_096
"""How many expressions, trees and programs are cached, each by its source."""

MAX_TEMPLATE_DEPTH: Final = 32
_LARGEST_INTEGER: Final = 2**53 - 1

Json: TypeAlias = "dict[str, Any] | list[Any] | str | int | float | bool | None"
Context: TypeAlias = Mapping[str, Any]
_Evaluate: TypeAlias = "Callable[[Context, CostBudget], Json]"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_MISSING: Final = object()


class InvalidExpression(ExpressionError):
    """Text that cannot be compiled; `findings` has every problem, and where in the value it is."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = tuple(findings[:MAX_FINDINGS])
        first = self.findings[0]
        super().__init__(first.message, column=first.inside + 1, hint=first.hint)


class Expression:
    """A compiled expression. Immutable, and safe to evaluate from several threads at once."""

    __slots__ = ("_evaluate", "_seen", "path", "reads", "references", "result_type", "roots", "source")

    def __init__(self, source: str, resolved: Resolved, result_type: str, evaluate: _Evaluate) -> None:
        self.source: Final = source
        self.path: Final = resolved.path
        """The one value that it reads, if it does nothing else."""
        self.reads: Final = resolved.reads
        """The steps it reads and the field of each: `("create-account", "output")`."""
        self.references: Final = frozenset(step for step, _ in resolved.reads)
        """The names of the steps it reads."""
        self.roots: Final = resolved.roots
        """The names it begins with: `input`, `steps`, `run` and so on."""
        self.result_type: Final = result_type
        """CEL's name of the result type (`bool`, `string`, …); `dyn` if that depends on the data."""
        self._evaluate, self._seen = evaluate, (resolved.tree, resolved.spellings)

    def seen(self, context: Context) -> list[tuple[str, Any]]:
        """The values of this context that it reads, each with its path; absent values are left out.

        >>> compile_expression("input.n < 3", Scope()).seen({"input": {"n": 5, "m": 1}})
        [('input.n', 5)]
        """
        tree, names = self._seen
        found: list[tuple[str, Any]] = []
        waiting: list[tuple[str, Any, Tree | None]] = [(root, context.get(root), below) for root, below in tree.items()]
        while waiting:
            path, value, below = waiting.pop(0)
            if below is None or not isinstance(value, Mapping):
                found += [] if value is None and path not in context else [(path, value)]
                continue
            for key, deeper in below.items():
                known = names.get(key, key) if path == "steps" else key
                if known in value:
                    waiting.append((f"{path}.{known}", value[known], deeper))
        return found

    @property
    def uses_input(self) -> bool:
        return "input" in self.roots

    @property
    def uses_run(self) -> bool:
        return "run" in self.roots

    def evaluate(self, context: Context, budget: CostBudget | None = None) -> Json:
        """The value for this context: `{"input": …, "steps": {name: {"output": …, …}}, "run": {…}}`.

        What it costs is taken from the budget; without one it may cost as much as a whole template.
        """
        try:
            return self._evaluate(context, budget or CostBudget())
        except ExpressionError as error:
            shown = self.source if len(self.source) <= 80 else f"{self.source[:80]}…"
            raise ExpressionError(f"`{shown}` cannot be evaluated: {error.message}", hint=error.hint) from None


def compile_expression(source: str, scope: Scope) -> Expression:
    """Compile the text of one expression, without its `${{ }}`; raises InvalidExpression.

    >>> double = compile_expression("steps.count_rows.output * 2", Scope(["count-rows"]))
    >>> double.references
    frozenset({'count-rows'})
    >>> double.evaluate({"steps": {"count-rows": {"output": 21}}})
    42
    """
    budget = scope.budget
    if budget is not None:
        _allow(budget.count())
    known: Expression | None = scope.compiled.get(source)
    if known is None:
        known = _compile(source, scope)
        if len(scope.compiled) < MAX_KEPT:
            scope.compiled[source] = known
    return known


def _compile(source: str, scope: Scope) -> Expression:
    if len(source) > MAX_SOURCE:
        said = f"This expression is longer than {MAX_SOURCE} characters."
        raise InvalidExpression([Finding((), said, "Do it in a step.")])
    if not source.isascii() and any("\ud800" <= character <= "\udfff" for character in source):
        raise InvalidExpression([Finding((), "This expression holds half of a surrogate pair.", "Remove it.")])
    budget = scope.budget
    if budget is not None:
        _allow(budget.spend(text_cost(source)))
    by_cel = _by_cel(source)
    resolved = resolve(by_cel.tree, source, scope)
    if budget is not None and resolved.patterns:
        _allow(budget.spend(sum(pattern_cost(pattern_program(pattern)) for pattern, _ in resolved.patterns)))
    findings = [*resolved.findings, *_bad_patterns(resolved)]
    if resolved.path is not None and not findings:
        return Expression(source.strip(), resolved, "dyn", _PathReader(resolved.path))
    if findings or by_cel.program is None:
        raise InvalidExpression(_all_findings(findings, by_cel.findings))
    evaluate = _Evaluator(by_cel.program, by_cel.tree, resolved)
    return Expression(source.strip(), resolved, by_cel.result_type, evaluate)


def _allow(refusal: str) -> None:
    if refusal:
        raise InvalidExpression([Finding((), refusal, "Do more of it in handlers, or split the workflow.")])


class _Compiled(NamedTuple):
    """CEL's result for a text, without resolving its names: a program, or problems of functions and types."""

    tree: Node
    program: Program | None
    result_type: str
    findings: tuple[Finding, ...]


@lru_cache(maxsize=MAX_KEPT)
def _by_cel(source: str) -> _Compiled:
    try:
        program = cel_binding.compiled(source)
    except CelRefused as error:
        tree = _parsed(source)
        functions = {node.function for node in walk(tree) if isinstance(node, Call)}
        return _Compiled(tree, None, "", tuple(compile_findings(str(error), source, functions)))
    # The check makes one name of `google.protobuf.Duration`, which would be told at its end.
    tree = _parsed(source) if "google" in source else decode(program.serialized())
    try:
        return _Compiled(tree, program, program.result_type(), ())
    except CelRefused:
        # CEL compiles a map whose keys it has no type for, and refuses to name the type of the whole.
        at = next((node.at for node in walk(tree) if isinstance(node, MapOf)), 0)
        return _Compiled(tree, None, "", (bad_map_key(at),))


def _parsed(source: str) -> Node:
    try:
        return decode(cel_binding.parsed(source).serialized())
    except CelRefused as error:
        raise InvalidExpression(compile_findings(str(error), source)) from None


def _all_findings(by_names: list[Finding], by_cel: tuple[Finding, ...]) -> list[Finding]:
    """Problems of the names, and CEL's findings that are not covered by them."""
    said = {finding.message for finding in by_names}
    more = [finding for finding in by_cel if finding.message not in said]
    return sorted([*by_names, *more], key=lambda finding: finding.inside)


def _bad_patterns(resolved: Resolved) -> list[Finding]:
    findings = []
    for pattern, at in resolved.patterns:
        try:
            cel_binding.compiled("''.matches(input)").evaluate({"input": pattern})
        except CelRefused as error:
            reason, _ = evaluation_words(str(error))
            findings.append(Finding((), f"This is an {reason}.", "See the syntax of RE2.", inside=at))
    return findings


class _PathReader:
    """Reads one value of the context unchanged, whatever its size. A template copies what two of them would share."""

    def __init__(self, path: StaticPath) -> None:
        self.root, self.keys = path

    def __call__(self, context: Context, budget: CostBudget) -> Json:
        value: Any = context.get(self.root, _MISSING)
        if value is _MISSING:
            raise ExpressionError(f"there is no `{self.root}` here.")
        for depth, key in enumerate(self.keys):
            if isinstance(key, str):
                if not isinstance(value, Mapping) or key not in value:
                    raise self._missing(value, depth)
            elif not isinstance(value, list) or key >= len(value):
                raise self._missing(value, depth)
            value = value[key]
        result: Json = value
        return result

    def _missing(self, value: Any, depth: int) -> ExpressionError:
        key, parent = self.keys[depth], self._written(depth)
        if self.root == "steps" and depth <= 1:
            return ExpressionError(f"step `{self.keys[0]}` has no {self.keys[1]} here.", hint="Ask with has() first.")
        if isinstance(value, Mapping):
            closest = nearest(str(key), [name for name in list(value)[:500] if isinstance(name, str)])
            hint = f"Did you mean `{closest}`?" if closest else "Ask with has() first."
            return ExpressionError(f"`{parent}` has no `{key}`.", hint=hint)
        if isinstance(value, list):
            return ExpressionError(f"`{parent}` is a list of {len(value)} and has no `{key}`.")
        return ExpressionError(f"`{parent}` is {_kind(value)} and has no `{key}`.")

    def _written(self, depth: int) -> str:
        parts = [f".{key}" if isinstance(key, str) else f"[{key}]" for key in self.keys[:depth]]
        return self.root + "".join(parts)


class _Evaluator:
    """Passes CEL only what the expression reads, within limits, and returns only what JSON can hold."""

    def __init__(self, program: Program, tree: Node, resolved: Resolved) -> None:
        self.program, self.tree, self.resolved = program, tree, resolved
        self.traits: Traits | None = None

    def __call__(self, context: Context, budget: CostBudget) -> Json:
        data = self._data(context)
        weight = data_weight(data)
        # Not earlier: at publication thousands of expressions are compiled and none is evaluated.
        traits = self.traits = self.traits or traits_of(self.tree)
        may_hold_null = weight.may_hold_null or traits.makes_null
        budget.spend(weight.reading_cost)
        simple = simple_cost(traits, weight)
        if simple is not None and simple <= budget.remaining // 16:
            budget.spend(simple)
        else:
            check_cost(self.tree, data, budget, may_hold_null=may_hold_null)
        try:
            value = self.program.evaluate(data, may_hold_null=may_hold_null)
        except CelRefused as error:
            said, hint = evaluation_words(str(error))
            raise ExpressionError(f"{said}.", hint=hint) from None
        return _to_json(value)

    def _data(self, context: Context) -> Context:
        data: dict[str, Any] = {}
        for root, tree in self.resolved.tree.items():
            if root == "steps":
                data[root] = self._steps(context.get("steps") or {}, tree or {})
            elif root in context:
                data[root] = _projected(context[root], tree)
        return data

    def _steps(self, steps: Mapping[str, Any], tree: Tree) -> Context:
        names = self.resolved.spellings
        return {written: _projected(steps.get(names[written]) or {}, fields) for written, fields in tree.items()}


def _projected(value: Any, tree: Tree | None) -> Any:
    """The part of a value that is read. It recurses no deeper than the expression is long."""
    if tree is None or not isinstance(value, Mapping):
        return value
    return {key: _projected(value[key], below) for key, below in tree.items() if key in value}


def _to_json(value: Any) -> Json:
    """The result as plain JSON, with the keys of maps sorted: CEL's own order changes from process to process."""
    if not isinstance(value, (dict, list)):
        return _scalar(value)
    holder: list[Any] = [value]
    waiting: list[tuple[Any, Any]] = [(holder, 0)]
    while waiting:
        parent, place = waiting.pop()
        item = parent[place]
        if isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                raise ExpressionError("the result is a map whose keys are not text.", hint="Convert with string().")
            parent[place] = ordered = {_scalar(key): item[key] for key in sorted(item)}
            waiting.extend((ordered, key) for key in ordered)
        elif isinstance(item, list):
            if not _all_alike_and_fine(item):
                waiting.extend((item, number) for number in range(len(item)))
        else:
            parent[place] = _scalar(item)
    result: Json = holder[0]
    return result


def _all_alike_and_fine(items: list[Any]) -> bool:
    """Whether a list holds nothing but small numbers, or truths and nulls; most long lists of results do."""
    kinds = set(map(type, items))
    if kinds == {int}:
        return bool(min(items) >= -_LARGEST_INTEGER and max(items) <= _LARGEST_INTEGER)
    return kinds <= {bool, type(None)}


def _scalar(value: Any) -> str | int | float | bool | None:
    match value:
        case None | bool():
            return value
        case str():
            if "\x00" in value:
                raise ExpressionError("the result holds a NUL character, which cannot be stored.")
            return value
        case int():
            if abs(value) > _LARGEST_INTEGER:
                said = f"the result {value} is beyond 2^53, where many readers of JSON round."
                raise ExpressionError(said, hint="Convert with string().")
            return value
        case float():
            if not math.isfinite(value):
                raise ExpressionError(f"the result is {value}, which JSON does not have.")
            return value
    hint = "" if cel_binding.is_type(value) else "Convert with string()."
    raise ExpressionError(f"the result is {_kind(value)}, which JSON does not have.", hint=hint)


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return "text"
        case int() | float():
            return "a number"
        case bytes() | bytearray():
            return "bytes"
        case datetime.datetime():
            return "a timestamp"
        case datetime.timedelta():
            return "a duration"
    return "a type" if cel_binding.is_type(value) else f"a {type(value).__name__}"


class Template:
    """A value with expressions. Each rendering is a new value; no two share a list or a mapping."""

    __slots__ = ("_root", "expressions", "reads", "references", "secrets", "uses_input", "uses_run")

    def __init__(self, root: _Piece, expressions: tuple[Expression, ...]) -> None:
        self._root = _apart(root, _overlapping(expressions))
        self.expressions: Final = expressions
        self.reads: Final = frozenset(read for expression in expressions for read in expression.reads)
        self.references: Final = frozenset(name for expression in expressions for name in expression.references)
        self.secrets: Final = frozenset(
            str(one.path.keys[0]) for one in expressions if one.path is not None and one.path.root == "secret"
        )
        """The names of the secrets it reads."""
        self.uses_input: Final = any(expression.uses_input for expression in expressions)
        self.uses_run: Final = any(expression.uses_run for expression in expressions)

    def render(self, context: Context, budget: CostBudget | None = None) -> Json:
        """The value with every expression evaluated, all within one budget.

        What a path reads is a part of the context itself, so the context must be decoded for this rendering alone.
        """
        rendered: Json = _rendered(self._root, context, budget or CostBudget())
        return rendered


def compile_template(value: Any, scope: Scope) -> Template:
    """Compile a value of nested mappings, lists and texts; raises InvalidExpression with all that is wrong in it.

    A text that is one `${{ … }}` and nothing else becomes the value itself, with its type; in other texts,
    expressions become text, and what is not text is written as JSON.

    >>> template = compile_template({"to": "${{ input.email }}", "n": ["${{ 1 + 1 }}", "${{ 2 }}nd"]}, Scope())
    >>> template.render({"input": {"email": "a@b.c"}})
    {'to': 'a@b.c', 'n': [2, '2nd']}
    """
    compiler = _TemplateCompiler(scope)
    root = compiler.piece(value, ())
    if compiler.findings:
        raise InvalidExpression(compiler.findings)
    return Template(root, tuple(compiler.expressions))


class _Constant(msgspec.Struct, frozen=True):
    value: Any


class _ConstantJson:
    """A list or a mapping without expressions, kept encoded and decoded for each rendering."""

    __slots__ = ("_encoded", "_value")

    def __init__(self, value: Any) -> None:
        self._value, self._encoded = value, b""

    def render(self) -> Any:
        # Not earlier: at publication a template is compiled and never rendered.
        self._encoded = self._encoded or _encode(self._value)
        return _decode(self._encoded)


class _Copied(msgspec.Struct, frozen=True):
    """An expression that reads what another one of the same template also reads."""

    expression: Expression


class _Text(msgspec.Struct, frozen=True):
    parts: tuple[str | Expression, ...]


class _Mapping(msgspec.Struct, frozen=True):
    items: dict[str, Any]


class _List(msgspec.Struct, frozen=True):
    items: list[Any]


_Piece: TypeAlias = _Constant | _ConstantJson | Expression | _Copied | _Text | _Mapping | _List


def _apart(piece: _Piece, overlapping: frozenset[Expression]) -> _Piece:
    """The piece, without anything that two renderings, or two parts of one, would share."""
    match piece:
        case _Constant() if isinstance(piece.value, dict | list):
            return _ConstantJson(piece.value)
        case Expression() if piece in overlapping:
            return _Copied(piece)
        case _Mapping():
            return _Mapping({key: _apart(item, overlapping) for key, item in piece.items.items()})
        case _List():
            return _List([_apart(item, overlapping) for item in piece.items])
    return piece


def _overlapping(expressions: tuple[Expression, ...]) -> frozenset[Expression]:
    """Paths of which one leads to, or through, what another one reads."""
    found: set[Expression] = set()
    read = [(one.path, number) for number, one in enumerate(expressions) if one.path is not None]
    ways = sorted(((path.root, *map(str, path.keys)), number) for path, number in read)
    above: list[tuple[tuple[str, ...], int]] = []
    for way, number in ways:
        while above and above[-1][0] != way[: len(above[-1][0])]:
            above.pop()
        if above:
            found.add(expressions[number])
        above.append((way, number))
    return frozenset(found)


def _rendered(piece: _Piece, context: Context, budget: CostBudget) -> Any:
    """It recurses no deeper than the compiler let the template nest."""
    match piece:
        case _Constant():
            return piece.value
        case _ConstantJson():
            return piece.render()
        case Expression():
            return piece.evaluate(context, budget)
        case _Copied():
            return _copied(piece.expression.evaluate(context, budget))
        case _Text():
            return "".join(part if isinstance(part, str) else _as_text(part, context, budget) for part in piece.parts)
        case _Mapping():
            return {key: _rendered(item, context, budget) for key, item in piece.items.items()}
        case _List():
            return [_rendered(item, context, budget) for item in piece.items]


def _copied(value: Any) -> Any:
    """A deep copy of JSON, without recursion: data may be nested as deep as its decoder allows."""
    root = [value]
    waiting: list[tuple[Any, Any]] = [(root, 0)]
    while waiting:
        parent, place = waiting.pop()
        item = parent[place]
        if isinstance(item, dict):
            parent[place] = copy = dict(item)
            waiting.extend((copy, key) for key, below in copy.items() if isinstance(below, dict | list))
        elif isinstance(item, list):
            parent[place] = listed = list(item)
            waiting.extend((listed, at) for at, below in enumerate(listed) if isinstance(below, dict | list))
    return root[0]


def _as_text(expression: Expression, context: Context, budget: CostBudget) -> str:
    value = expression.evaluate(context, budget)
    if isinstance(value, str):
        return value
    try:
        return _encode(value).decode()
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ExpressionError(f"`{expression.source[:80]}` cannot be written as text: {error}.") from None


class _TemplateCompiler:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.findings: list[Finding] = []
        self.expressions: list[Expression] = []

    def piece(self, value: Any, path: tuple[str | int, ...]) -> _Piece:
        if self._is_done():
            return _Constant(value)
        if isinstance(value, str):
            return self._text(value, path) if OPENING in value else _Constant(value)
        if not isinstance(value, (dict, list)) or not value:
            return _Constant(value)
        if len(path) >= MAX_TEMPLATE_DEPTH:
            said = f"This is nested more than {MAX_TEMPLATE_DEPTH} levels deep."
            self.findings.append(Finding(path, said, "Flatten the structure."))
            return _Constant(value)
        if isinstance(value, list):
            items = [self.piece(item, (*path, number)) for number, item in enumerate(value)]
            return _Constant(value) if all(isinstance(item, _Constant) for item in items) else _List(items)
        for key in value:
            if isinstance(key, str) and OPENING in key:
                said = "An expression cannot stand in a key."
                self.findings.append(Finding((*path, key), said, "Write the key out.", key=True))
        entries = {key: self.piece(item, (*path, key)) for key, item in value.items()}
        constant = all(isinstance(item, _Constant) for item in entries.values())
        return _Constant(value) if constant else _Mapping(entries)

    def _text(self, text: str, path: tuple[str | int, ...]) -> _Piece:
        parts: list[str | Expression] = []
        for part in split(text):
            if self._is_done():
                break
            match part:
                case str():
                    parts.append(part)
                case Embedded():
                    parts += self._embedded(part, path)
                case Unclosed():
                    hint = "Close it, and put the whole text in quotes if it holds ` #` or `: `."
                    self.findings.append(Finding(path, "`${{` has no `}}`.", hint, inside=part.offset))
        expressions = [part for part in parts if isinstance(part, Expression)]
        others = "".join(part for part in parts if isinstance(part, str))
        if len(expressions) == 1 and not others.strip():
            return expressions[0]
        return _Text(tuple(parts))

    def _is_done(self) -> bool:
        """Enough problems were found, or the budget is spent."""
        budget = self.scope.budget
        return len(self.findings) >= MAX_FINDINGS or (budget is not None and budget.is_spent)

    def _embedded(self, embedded: Embedded, path: tuple[str | int, ...]) -> list[Expression]:
        try:
            expression = compile_expression(embedded.source, self.scope)
        except InvalidExpression as error:
            for finding in error.findings:
                inside = embedded.offset + finding.inside
                self.findings.append(finding._replace(path=path, inside=inside))
            return []
        self.expressions.append(expression)
        return [expression]
