"""Resolves every name in an expression before it runs: what it may read, and what it does read.

Steps must be named literally, so that a definition's references are known at publication. It evaluates nothing and
knows no CEL beyond its tree. `expressions` calls `resolve`; front ends build the `Scope`.

Secrets in definitions: which ones a step reads, and how Python and queues name them. It never sees a value.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from stepkeep.definition.expressions.limits import MAX_PATTERN, MAX_PATTERN_PROGRAM, ExpressionBudget, pattern_program
from stepkeep.definition.expressions.objects import Expr
from stepkeep.definition.expressions.syntax_tree import (
    Call,
    Constant,
    ListOf,
    Loop,
    MapOf,
    Name,
    Node,
    Select,
    children,
)
from stepkeep.definition.expressions.template_text import OPENING, Embedded, split
from stepkeep.definition.findings import Finding, did_you_mean
from stepkeep.definition.text.document import nearest
from stepkeep.edges.safe_text import plain_text, type_name
from stepkeep.kernel.errors import InvalidInput

LONGEST_SECRET_NAME: Final = 100
CAPABILITY: Final = "secret:"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_READ = re.compile(r"""\s*secret(?:\s*\.\s*([A-Za-z0-9_]+)|\s*\[\s*["']([A-Za-z0-9_]+)["']\s*\])\s*""")


def secret(name: str) -> Expr:
    """A secret of the worker that executes the step, for inputs, headers, variables and arguments.

    It is a reference: the value is read when the step is executed, and is never stored. It stands alone or in an
    f-string; nothing can be computed with it.

    >>> print(f"Bearer {secret('API_TOKEN')}")
    Bearer ${{ secret.API_TOKEN }}
    """
    if not is_secret_name(text := plain_text(name)):
        given = type_name(name) if text is None else repr(text[:40])
        raise InvalidInput(
            f"secret() takes a name of letters, digits and _, at most {LONGEST_SECRET_NAME} characters, not {given}."
        )
    return Expr(f"secret.{text}")


def is_secret_name(name: str | None) -> bool:
    """Whether a secret can have this name."""
    return name is not None and len(name) <= LONGEST_SECRET_NAME and _NAME.fullmatch(name) is not None


def reference(name: str) -> str:
    """How a definition names a secret. This is shown and stored instead of its value."""
    return f"{OPENING} secret.{name} }}}}"


def secret_capability(name: str) -> str:
    """What a queue asks of a worker for a step that reads this secret."""
    return f"{CAPABILITY}{name}"


def secrets_among(capabilities: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the secrets among the capabilities of a queue."""
    return tuple(word.removeprefix(CAPABILITY) for word in capabilities if word.startswith(CAPABILITY))


def secrets_read(value: Any) -> list[str]:
    """The secrets that the templates in plain data read, sorted.

    >>> secrets_read({"token": "Bearer ${{ secret.API_TOKEN }}", "to": ["${{ input.email }}"]})
    ['API_TOKEN']
    """
    found: set[str] = set()
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, str) and OPENING in part:
            reads = (_READ.fullmatch(piece.source) for piece in split(part) if isinstance(piece, Embedded))
            found.update(read[1] or read[2] for read in reads if read is not None)
    return sorted(found)


STEP_FIELDS: Final = ("output", "state", "error")
RUN_FIELDS: Final = ("id", "workflow", "version", "correlation_id", "business_key", "started_at")
MAX_LOOP_DEPTH: Final = 2
MAX_FINDINGS: Final = 20
"""Limit on findings per expression, because each unknown name is compared with all known ones."""

_VARIABLES: Final = frozenset({"input", "steps", "run", "output"})
_TYPE_NAMES: Final = frozenset({"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"})
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_AFTER_DOT = re.compile(r"\s*\.\s*([A-Za-z0-9_.-]+)")

Tree: TypeAlias = "dict[str, Tree | None]"
"""Which keys of a mapping are read, and which keys of those; None: all of it."""


class Scope:
    """The names that exist where an expression stands.

    `input_fields` are the declared fields of the run's input (None: not declared, so anything goes); `output` is
    whether there is a result to judge, as in validation rules; `secrets` whether secrets may stand here. `budget`
    bounds what is compiled in this scope and in those that share it. `compiled` keeps what was compiled, by its
    source: equal texts are compiled once. With `facts`, as in policies, the names are exactly these, each with its
    fields (None: any). `element` are the names that an element of a map or a loop has besides.
    """

    def __init__(
        self,
        steps: Iterable[str] = (),
        *,
        input_fields: Iterable[str] | None = None,
        output: bool = False,
        step_fields: Iterable[str] = STEP_FIELDS,
        run_fields: Iterable[str] = RUN_FIELDS,
        budget: ExpressionBudget | None = None,
        secrets: bool = False,
        facts: Mapping[str, tuple[str, ...] | None] | None = None,
        element: tuple[str, ...] = (),
    ) -> None:
        self.budget = budget
        self.compiled: dict[str, Any] = {}
        self.steps = frozenset(steps)
        self.input_fields = None if input_fields is None else frozenset(input_fields)
        self.step_fields = tuple(step_fields)
        self.run_fields = tuple(run_fields)
        left_out = {"output": not output, "secret": not secrets}
        usual = tuple(name for name in ("input", "steps", "run", "output", "secret") if not left_out.get(name))
        self.facts = facts
        self.variables = (*usual, *element) if facts is None else tuple(facts)
        self.by_identifier: dict[str, list[str]] = defaultdict(list)
        for name in sorted(self.steps):
            self.by_identifier[re.sub("[-.]", "_", name)].append(name)

    def written(self, step: str) -> str:
        """How an expression names a step: `steps.create_account`, or with brackets where that is ambiguous."""
        identifier = re.sub("[-.]", "_", step)
        if _IDENTIFIER.fullmatch(identifier) and len(self.by_identifier.get(identifier, ())) == 1:
            return f"steps.{identifier}"
        return f'steps["{step}"]'


class StaticPath(NamedTuple):
    """An expression that only reads one value, such as `input.customer.email`; steps have their real names."""

    root: str
    keys: tuple[str | int, ...]


class Resolved(NamedTuple):
    """What an expression reads, and the problems of its names."""

    reads: frozenset[tuple[str, str]]
    """The steps and the fields of them: `("create-account", "output")`."""
    roots: frozenset[str]
    tree: Tree
    spellings: Mapping[str, str]
    """The real name of each step, by its written form."""
    path: StaticPath | None
    patterns: tuple[tuple[str, int], ...]
    findings: tuple[Finding, ...]


class _ScopePart(NamedTuple):
    key: str | int
    at: int
    bracket: bool


class _Chain(NamedTuple):
    root: Node
    parts: tuple[_ScopePart, ...]
    tested: bool


def bad_map_key(at: int) -> Finding:
    """The finding for a map whose keys CEL has no type for."""
    return Finding((), "The keys of a map are text, whole numbers, true or false.", "Use string().", inside=at)


def resolve(tree: Node, source: str, scope: Scope) -> Resolved:
    """Resolve every name in an expression."""
    resolver = _Resolver(source, scope)
    resolver.visit(tree, frozenset(), 0)
    chain = _chain(tree)
    plain = isinstance(chain.root, Name) and not chain.tested and not resolver.findings
    path = resolver.static_path(chain) if plain else None
    if path is None and "secret" in resolver.tree:
        resolver.refuse_computed_secret(tree)
    return Resolved(
        reads=frozenset(resolver.reads),
        roots=frozenset(resolver.tree),
        tree=resolver.tree,
        spellings=resolver.spellings,
        path=path,
        patterns=tuple(resolver.patterns),
        findings=tuple(sorted(set(resolver.findings), key=lambda finding: finding.inside)),
    )


def _chain(node: Node) -> _Chain:
    """`root.a["b"][0]` split into its parts, as far as its keys are literal."""
    parts: list[_ScopePart] = []
    tested = isinstance(node, Select) and node.test
    while True:
        match node:
            case Select() if not (node.test and parts):
                parts.append(_ScopePart(node.field, node.at + 1, bracket=False))
                node = node.operand
            case Call(function="_[_]", arguments=(operand, Constant(at=at, value=str() | int() as key))) if (
                not isinstance(key, bool)
            ):
                parts.append(_ScopePart(key, at, bracket=True))
                node = operand
            case _:
                return _Chain(node, tuple(reversed(parts)), tested)


class _Resolver:
    def __init__(self, source: str, scope: Scope) -> None:
        self.source, self.scope = source, scope
        self.findings: list[Finding] = []
        self.reads: set[tuple[str, str]] = set()
        self.tree: Tree = {}
        self.spellings: dict[str, str] = {}
        self.patterns: list[tuple[str, int]] = []
        # The position of a step name that was split; its second half is not a name of its own.
        self.misread = range(0)

    def visit(self, node: Node, local: frozenset[str], loops: int) -> None:
        if len(self.findings) >= MAX_FINDINGS:
            return
        chain = _chain(node)
        if chain.parts or isinstance(node, Name):
            if not isinstance(chain.root, Name):
                self.visit(chain.root, local, loops)
            elif chain.root.name not in local:
                self._variable(chain.root, chain.parts)
            return
        match node:
            case Loop():
                self._loop(node, local, loops)
                return
            case Call(function="matches"):
                self._matches(node)
            case MapOf(message=message) if message:
                self._find(node.at, f"`{message}` cannot be made here.", 'Write a map: {"key": value}.')
                return
            case MapOf():
                self.findings.extend(bad_map_key(key.at) for key, _ in node.entries if _is_no_key(key))
        for child in children(node):
            self.visit(child, local, loops)

    def static_path(self, chain: _Chain) -> StaticPath | None:
        assert isinstance(chain.root, Name)
        keys = [part.key for part in chain.parts]
        if chain.root.name not in self.tree or any(isinstance(key, int) and key < 0 for key in keys):
            return None
        if chain.root.name == "steps":
            keys[0] = self.spellings[str(keys[0])]
        return StaticPath(chain.root.name, tuple(keys))

    def refuse_computed_secret(self, tree: Node) -> None:
        """A value that is computed from a secret could not be recognised, and so not be hidden."""
        hint = 'Write it as it is, with text around it: "Bearer ${{ secret.NAME }}".'
        self._find(tree.at, "A secret stands alone in its `${{ }}`: nothing is computed with it.", hint)

    def _find(self, at: int, message: str, hint: str = "") -> None:
        if at not in self.misread and len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding((), message, hint, inside=at))

    def _loop(self, node: Loop, local: frozenset[str], loops: int) -> None:
        if loops == MAX_LOOP_DEPTH:
            self._find(node.at, f"Loops are nested more than {MAX_LOOP_DEPTH} deep here.", "Do it in a step.")
            return
        if node.variable in _VARIABLES:
            self._find(node.at, f"A loop cannot call its items `{node.variable}`.", "Choose another name.")
            return
        self.visit(node.over, local, loops)
        inner = local | {node.variable, node.result}
        for part in (node.start, node.step, node.last):
            self.visit(part, inner, loops + 1)

    def _matches(self, node: Call) -> None:
        pattern = node.arguments[-1]
        if not isinstance(pattern, Constant) or not isinstance(pattern.value, str):
            self._find(pattern.at, "The pattern of matches() must be written out.", 'Write it in quotes: "^[a-z]+$".')
        elif len(pattern.value) > MAX_PATTERN or pattern_program(pattern.value) > MAX_PATTERN_PROGRAM:
            self._find(pattern.at, "The pattern of matches() is too large.", "Use fewer and smaller repetitions.")
        else:
            self.patterns.append((pattern.value, pattern.at))

    def _variable(self, root: Name, parts: tuple[_ScopePart, ...]) -> None:
        name = root.name.removeprefix(".")
        if name not in self.scope.variables:
            if name not in _TYPE_NAMES or parts:
                self._unknown_name(root, name)
            return
        if self.scope.facts is not None:
            self._fact(root, name, self.scope.facts[name], parts)
            self._note(name, [part.key for part in parts])
            return
        match name:
            case "input":
                self._input(parts)
            case "steps":
                self._step(root, parts)
            case "run":
                self._run(root, parts)
            case "secret":
                self._secret(root, parts)
        self._note(name, [part.key for part in parts])

    def _unknown_name(self, root: Name, name: str) -> None:
        if name == "output":
            self._find(root.at, "There is no `output` here.", "Only rules that judge a result can look at it.")
            return
        if name == "secret":
            said = "A secret cannot be read here: what is evaluated here is stored, or decides what is."
            self._find(root.at, said, "Only inputs, arguments, variables, headers, bodies and URLs of steps read one.")
            return
        if name in ("item", "last", "index"):
            said = "Only inputs of a step with `map` read item and index; those of one with `repeat`, last and index."
            self._find(root.at, f"There is no `{name}` here.", said)
            return
        hint = did_you_mean(name, self.scope.variables) or f"There are {_listed(self.scope.variables)}."
        if name in self.scope.by_identifier or name in self.scope.steps:
            hint = f"Steps are read as {self.scope.written(self._real(name))}.output."
        self._find(root.at, f"There is no `{name}`.", hint)

    def _real(self, identifier: str) -> str:
        return self.scope.by_identifier.get(identifier, [identifier])[0]

    def _input(self, parts: tuple[_ScopePart, ...]) -> None:
        fields = self.scope.input_fields
        if fields is None or not parts or parts[0].key in fields:
            return
        key = str(parts[0].key)
        hint = did_you_mean(key, fields) or (f"It has {_listed(fields)}." if fields else "It has no fields.")
        self._find(parts[0].at, f"The declared input has no `{key}`.", hint)

    def _fact(self, root: Name, name: str, fields: tuple[str, ...] | None, parts: tuple[_ScopePart, ...]) -> None:
        if fields is None:
            return
        if not parts:
            said = f"`{name}` is not a value by itself."
            self._find(root.at, said, f"Read one of {_listed(fields)}, as in {name}.{fields[0]}.")
        elif parts[0].key not in fields:
            hint = did_you_mean(str(parts[0].key), fields) or f"There are {_listed(fields)}."
            self._find(parts[0].at, f"`{name}` has no `{parts[0].key}`.", hint)

    def _run(self, root: Name, parts: tuple[_ScopePart, ...]) -> None:
        fields = self.scope.run_fields
        if not parts:
            self._find(root.at, "`run` is not a value by itself.", f"Read one of {_listed(fields)}, as in run.id.")
        elif parts[0].key not in fields:
            hint = did_you_mean(str(parts[0].key), fields) or f"It has {_listed(fields)}."
            self._find(parts[0].at, f"A run has no `{parts[0].key}`.", hint)

    def _secret(self, root: Name, parts: tuple[_ScopePart, ...]) -> None:
        name = parts[0].key if len(parts) == 1 else None
        if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name) or len(name) > LONGEST_SECRET_NAME:
            said = f"A secret has one name of letters, digits and _, at most {LONGEST_SECRET_NAME} characters."
            self._find(root.at, said, "Write secret.NAME, as in secret.API_TOKEN.")

    def _step(self, root: Name, parts: tuple[_ScopePart, ...]) -> None:
        if not parts or not isinstance(parts[0].key, str):
            hint = "Write steps.NAME.output, so that what is read is known before it runs."
            self._find(root.at, "`steps` must be followed by the name of a step.", hint)
            return
        step = self._known_step(root, parts[0])
        if step is None:
            return
        fields = self.scope.step_fields
        if len(parts) == 1:
            said = f"`{self.scope.written(step)}` is not a value by itself."
            self._find(parts[0].at, said, f"Read one of {_listed(fields)}.")
        elif parts[1].key not in fields:
            hint = did_you_mean(str(parts[1].key), fields) or f"It has {_listed(fields)}."
            self._find(parts[1].at, f"A step has no `{parts[1].key}`.", hint)
        else:
            self.spellings[parts[0].key] = step
            self.reads.add((step, str(parts[1].key)))

    def _known_step(self, root: Name, part: _ScopePart) -> str | None:
        written = str(part.key)
        if part.bracket or not _IDENTIFIER.fullmatch(written):
            candidates = [written] if written in self.scope.steps else []
        else:
            candidates = self.scope.by_identifier.get(written, [])
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            choices = " or ".join(f'steps["{name}"]' for name in candidates)
            self._find(part.at, f"`steps.{written}` could be {len(candidates)} steps.", f"Write {choices}.")
        else:
            self._unknown_step(root, part, written)
        return None

    def _unknown_step(self, root: Name, part: _ScopePart, written: str) -> None:
        """Also finds `steps.create-account`, which CEL reads as a subtraction."""
        in_source = _AFTER_DOT.match(self.source, root.at + len(root.name))
        longer = in_source[1] if in_source and not part.bracket else ""
        meant = next((name for name in sorted(self.scope.steps, key=len) if _begins(longer, name)), None)
        if meant is not None:
            said = f"`{meant}` cannot be written like this: dashes and dots mean something else here."
            self._find(part.at, said, f"Write {self.scope.written(meant)}.")
            self.misread = range(part.at, part.at + len(meant))
            return
        closest = nearest(written, self.scope.steps)
        hint = f"Did you mean {self.scope.written(closest)}?" if closest else "Steps are named as in `name:`."
        self._find(part.at, f"There is no step `{written}`.", hint if self.scope.steps else "There are no steps here.")

    def _note(self, root: str, keys: list[str | int]) -> None:
        """Record that this is read; what is read as a whole is not read in parts."""
        level: dict[str, Any] = self.tree
        path = [root]
        for key in keys:
            if not isinstance(key, str):
                break
            path.append(key)
        for key in path[:-1]:
            below = level.setdefault(key, {})
            if below is None:
                return
            level = below
        level[path[-1]] = None


def _is_no_key(node: Node) -> bool:
    """A literal that cannot be a key; other keys are known at evaluation."""
    if isinstance(node, Constant):
        return node.value is None or isinstance(node.value, float | bytes)
    return isinstance(node, ListOf | MapOf)


def _begins(text: str, name: str) -> bool:
    return text == name or (text.startswith(name) and text[len(name)] == ".")


def _listed(names: Iterable[str]) -> str:
    quoted = [f"`{name}`" for name in (names if isinstance(names, tuple) else sorted(names))]
    shown = quoted if len(quoted) <= 10 else [*quoted[:10], "…"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
