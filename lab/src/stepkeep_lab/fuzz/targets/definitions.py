"""Definitions: mutated and hand-made documents in every format, as YAML and as JSON.

Judges that a document is accepted or refused with a place, and that what is accepted survives a round trip.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec
import yaml

from stepkeep.definition.native.reader import CheckReport
from stepkeep.definition.text.document import parse_document
from stepkeep.dialects import registry
from stepkeep.edges.safe_text import inert
from stepkeep.kernel.definition import Definition, decode_definition, digest_of, encode_definition
from stepkeep.kernel.errors import DefinitionError, Problem
from stepkeep_lab.fuzz.chance import (
    changed_text,
    changed_tree,
    hostile_text,
    json_value,
    nested,
    scalar,
    shorter_text,
)
from stepkeep_lab.fuzz.documents import DOCUMENTS, JSON_TRAPS, TRAPS
from stepkeep_lab.fuzz.target import Limits, Target, Verdict, broken
from stepkeep_lab.simulation.documents import DRAWERS

MOST_MESSAGE = 2_000
EXPRESSIONS = (
    "${{ input.email + 1 }}",
    "${{ {1.5: 2} }}",
    "${{ steps.create.output.map(x, x) }}",
    "${{ input.l.all(x, x.all(y, y.matches('a*')))}}",
    "${{ '' ",
    "${{ }}",
    "${{ timestamp('x') }}",
    "${{ output }}",
    "${{ has(input.x) ? input.x : null }}",
    "${{ 9223372036854775808 }}",
)
TREES = {name: parse_document(text, file=name).data for name, text in DOCUMENTS.items()}
WORDS = ("create", "sign-off", "abort", "skip", "manual", "1h", "-5s", "99999999h", "P1Y", "transient", "succeeded")


FREE = (
    ("description",),
    ("labels", "team"),
    ("input", "email", "description"),
    ("steps", 0, "with", "email"),
    ("steps", 0, "with", "tags"),
    ("steps", 0, "with", "nested", "deep"),
    ("steps", 0, "rules", 0, "message"),
    ("steps", 1, "approval", "prompt"),
    ("steps", 2, "http", "headers", "accept"),
    ("steps", 3, "command", "argv", 2),
    ("steps", 3, "command", "env", "LANG"),
    ("steps", 4, "action"),
    ("steps", 5, "description"),
)
"""Where the native document takes any text, or any value."""


class Document(msgspec.Struct, frozen=True):
    """A document as it would stand in a file, and the dialect it is read as (None: the one it looks like)."""

    text: str
    syntax: str
    dialect: str | None


Check = Callable[[Document], Definition]


def load(case: Document) -> Definition:
    """What the engine makes of a document."""
    file = f"fuzz.{case.syntax}"
    document = parse_document(case.text, file=file, syntax="json" if case.syntax == "json" else "yaml")
    report: CheckReport = registry.examine(document, None, case.dialect)
    if report.definition is None:
        raise DefinitionError(report.problems)
    return report.definition


class Definitions(Target[Document]):
    name = "definitions"
    what = "Mutated and hand-made documents, native and in five dialects, as YAML and as JSON."
    holds = (
        "A document is accepted, or refused with file, line and column for each problem. Messages stay short. "
        "What is accepted reads back equal from its encoding and keeps its digest."
    )
    limits = Limits(cpu_seconds=5.0, wall_seconds=120.0, memory_mb=500, batch=300)

    def __init__(self, load: Check = load) -> None:
        self._load = load

    def generate(self, random: Random) -> Document:
        syntax = random.choice(("yaml", "yaml", "json"))
        if random.random() < 0.15:
            trap = random.choice(JSON_TRAPS if syntax == "json" else TRAPS)
            return Document(trap if random.random() < 0.5 else changed_text(random, trap), syntax, None)
        if random.random() < 0.3:
            return Document(_written(random, _likely_accepted(random), syntax), syntax, None)
        name = random.choice((*DOCUMENTS, *["native"] * 4))
        text = DOCUMENTS[name]
        if random.random() < 0.6:
            tree = changed_tree(random, TREES[name], _part)
            text = _written(random, tree, syntax)
        elif syntax == "json":
            text = json.dumps(TREES[name], indent=1)
        if random.random() < 0.4:
            text = changed_text(random, text)
        dialect = random.choice((None, None, name, *DOCUMENTS))
        return Document(text, syntax, dialect)

    def check(self, case: Document) -> Verdict:
        try:
            definition = self._load(case)
        except DefinitionError as error:
            return _refused(error.problems)
        encoded = encode_definition(definition)
        again = decode_definition(encoded)
        if again != definition:
            return broken("reads back equal", "the decoded definition differs")
        if digest_of(encode_definition(again)) != digest_of(encoded):
            return broken("has a stable digest")
        return Verdict(outcome="accepted")

    def show(self, case: Document) -> str:
        return f"{case.syntax} as {case.dialect or 'recognised'}: {case.text!r}"

    def smaller(self, case: Document) -> Iterator[Document]:
        for text in shorter_text(case.text):
            yield Document(text, case.syntax, case.dialect)


def _refused(problems: tuple[Problem, ...]) -> Verdict:
    if not problems:
        return broken("says what is wrong", "refused without a problem")
    for problem in problems:
        if not problem.file or problem.line < 1 or problem.column < 1 or not problem.message:
            return broken("names file, line and column", repr(problem))
        said = inert(str(problem), limit=10 * MOST_MESSAGE)
        if len(said) > MOST_MESSAGE:
            return broken("keeps its messages short", f"{len(said)} characters: {said[:200]}")
    return Verdict(outcome="refused")


def _part(random: Random) -> Any:
    kind = random.random()
    if kind < 0.3:
        return scalar(random)
    if kind < 0.5:
        return random.choice(WORDS)
    if kind < 0.7:
        return random.choice(EXPRESSIONS)
    if kind < 0.95:
        return json_value(random)
    return nested(random.choice((20, 40, 100, 300)), leaf=hostile_text(random), mapping=random.random() < 0.5)


def _likely_accepted(random: Random) -> Any:
    """A document that fits its format, with hostile values where any text or value may stand."""
    if random.random() < 0.4:
        return DRAWERS[random.choice(tuple(DRAWERS))](random, "drawn", random.randint(1, 6))
    tree = copy.deepcopy(TREES["native"])
    for path in random.sample(FREE, 3):
        holder: Any = tree
        for part in path[:-1]:
            holder = holder[part]
        holder[path[-1]] = json_value(random, storable=True) if "with" in path else str(scalar(random, storable=True))
    return tree


def _written(random: Random, tree: Any, syntax: str) -> str:
    """The tree as text. JSON is YAML too, and keeps what YAML's own writer refuses."""
    if syntax == "json" or random.random() < 0.5:
        return json.dumps(tree, ensure_ascii=random.random() < 0.5, indent=random.choice((None, 1)))
    try:
        return str(yaml.safe_dump(tree, allow_unicode=True, sort_keys=False))
    except (yaml.YAMLError, UnicodeError, RecursionError):
        return json.dumps(tree)
