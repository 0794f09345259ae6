"""One pipeline for the format of every dialect: a document in, the canonical definition or all problems out.

A dialect contributes values: its model, its checks, its builder and its advice. Nothing of a document is executed. The
dialect registry calls `examine`; `python -m stepkeep.dialects.format NAME` prints the JSON Schema of a format.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from stepkeep.definition.findings import Finding, Path, Source, as_written, located
from stepkeep.definition.native.advice import advised
from stepkeep.definition.native.graph import Node
from stepkeep.definition.native.reader import CheckReport
from stepkeep.definition.native.written import published
from stepkeep.definition.python.registry import Registry
from stepkeep.definition.text.complaints import complaints
from stepkeep.kernel.definition import Definition

M = TypeVar("M", bound=BaseModel)
Data = dict[str, Any]


class FormatReading(NamedTuple, Generic[M]):
    """A document on its way through the pipeline; `written` is None where its shape is wrong."""

    data: Data
    written: M | None
    handlers: Registry | None


@dataclass(frozen=True, kw_only=True)
class Format(Generic[M]):
    """The format of one dialect.

    `is_a` says what a document is, for one that is no mapping. `claims` tells whether a mapping is in this format.
    `problems` are found beyond the shape, in all parts that are valid on their own. `reword` puts findings of the shape
    into the words of the format. `amend` adds to the JSON Schema what the model cannot express.
    """

    model: type[M]
    title: str
    is_a: str
    claims: Callable[[Data], bool]
    problems: Callable[[FormatReading[M]], Iterable[Finding]]
    build: Callable[[M, FormatReading[M]], Definition]
    advice: Callable[[M, Definition, FormatReading[M]], Iterable[Finding]] = lambda *_: ()
    reword: Callable[[Finding], Finding] = lambda finding: finding
    amend: Callable[[Data], None] = lambda _: None

    def recognises(self, data: Any) -> bool:
        return isinstance(data, dict) and self.claims(data)

    def examine(self, data: Any, source: Source, handlers: Registry | None = None) -> CheckReport:
        """Every problem and warning of a document; never raises for its content."""
        if not isinstance(data, dict):
            return CheckReport(definition=None, problems=(source.problem((), self.is_a),))
        written, findings = self._shaped(data)
        reading = FormatReading(data, written, handlers)
        findings += self.problems(reading)
        if written is None or findings:
            found = [finding._replace(path=as_written(finding.path, data)) for finding in findings]
            return CheckReport(definition=None, problems=located(source, found))
        definition = self.build(written, reading)
        return CheckReport(definition=definition, **advised(source, self.advice(written, definition, reading)))

    def _shaped(self, data: Data) -> tuple[M | None, list[Finding]]:
        try:
            return self.model.model_validate(data), []
        except ValidationError as error:
            return None, [self.reword(finding) for finding in complaints(error, data, self.model)]

    def schema_text(self) -> str:
        """The JSON Schema of the format, made from its model."""
        return published(self.model, self.title, self.amend)


def listed(data: Any, path: Path) -> list[Any]:
    """The list at this path; empty where there is none."""
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    return data if isinstance(data, list) else []


def valid_blocks(data: Data, path: Path, block: type[M]) -> Iterator[tuple[Path, M]]:
    """The items of a list that are valid on their own, each with its path."""
    for place, item in enumerate(listed(data, path)):
        if (found := valid(block, item)) is not None:
            yield (*path, place), found


def valid(block: type[M], data: Any) -> M | None:
    """This data as a block; None where it is not valid."""
    try:
        return block.model_validate(data)
    except ValidationError:
        return None


def outline(data: Data, path: Path, *, name: str, edges: str) -> Iterator[Node]:
    """The steps of a list with their names and dependencies, as far as they are readable."""
    for place, step in enumerate(listed(data, path)):
        if isinstance(step, dict) and isinstance(step.get(name), str):
            here = (*path, place)
            others = enumerate(listed(step, (edges,)))
            after = tuple((other, (*here, edges, number)) for number, other in others if isinstance(other, str))
            yield Node(step[name], here, after)


if __name__ == "__main__":
    from importlib import import_module

    sys.stdout.write(import_module(f"stepkeep.dialects.{sys.argv[1]}.front").FRONT.schema_text())
