"""A bench for the dialects whose plan is a chain (`run` and `linear`): documents in, runs on a real store, logs out."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.workbench import ACTOR, TENANT, Bench, benches

from stepkeep.conformance.verify import verify_lines
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.definition.native.reader import CheckReport
from stepkeep.definition.python.registry import Registry
from stepkeep.definition.text.document import parse_document
from stepkeep.dialects.dialect import JudgedDialect
from stepkeep.dialects.registry import dialect, judged
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.states import Category
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.logs.log import canonical_machines, export_run
from stepkeep.operations.people import people
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.operations.runs.projected import describe_run_as

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

Line = dict[str, Any]
Pair = tuple[str | None, str]

FLAKY = Failed(category=Category.UNKNOWN, error="the line is bad")
HOPELESS = Failed(category=Category.VALIDATION, error="no such customer")


def examined(name: str, text: str, handlers: Registry | None = None, *, syntax: Any = "yaml") -> CheckReport:
    """What the dialect's front end says about a text."""
    document = parse_document(text, file="doc.yaml", syntax=syntax)
    report = dialect(name).front.examine(document.data, document, handlers)
    assert isinstance(report, CheckReport)
    return report


def accepted(name: str, text: str, handlers: Registry | None = None) -> Definition:
    report = examined(name, text, handlers)
    assert report.problems == ()
    assert report.definition is not None
    return report.definition


def problems(name: str, text: str, handlers: Registry | None = None) -> list[str]:
    report = examined(name, text, handlers)
    assert report.definition is None
    return [str(problem) for problem in report.problems]


async def told(bench: Bench, run_id: str, name: str, tenant: str = TENANT) -> list[Line]:
    """A run's log in a dialect's words, its closing line included; judged on the way."""
    lines = [line async for line in export_run(bench.transactor, run_id, tenant=tenant, dialect=name)]
    raw = [msgspec.json.encode(line) for line in lines]
    assert [str(one) for one in replay_lines(raw, judged(name)).findings] == []
    canonical = [msgspec.json.encode(line) async for line in export_run(bench.transactor, run_id, tenant=tenant)]
    assert [str(one) for one in verify_lines(canonical, canonical_machines()).findings] == []
    return lines


def moves(lines: list[Line], step: str | None = None) -> list[Pair]:
    """The arrows of one step, or of the run itself."""
    return [
        (line["from_state"], line["to_state"])
        for line in lines
        if line["event_type"].endswith("_state_transition") and line["metadata"].get("step") == step
    ]


def path(lines: list[Line], step: str | None = None) -> str:
    """The same as one word per state."""
    found = moves(lines, step)
    return " ".join([str(found[0][1]), *(target for _, target in found[1:])]) if found else ""


async def shown(bench: Bench, run_id: str, name: str) -> dict[str, Any]:
    """A run in the dialect's own shapes."""
    return await describe_run_as(bench.transactor, run_id, name, tenant=TENANT)


async def later(bench: Bench, microseconds: int) -> None:
    """Let time pass, and let it act."""
    bench.store.clock_offset += microseconds
    while await sweep(bench.transactor):
        pass


async def cancel(bench: Bench, run_id: str) -> None:
    await people.cancel(bench.transactor, run_id, caller=Caller(TENANT, ACTOR))


async def decide(bench: Bench, run_id: str, *, approve: bool, step: str | None = None, actor: str = ACTOR) -> Any:
    return await people.decide_gate(bench.transactor, run_id, approve=approve, caller=Caller(TENANT, actor), step=step)


async def send(bench: Bench, run_id: str, event: str, payload: bytes = b"{}", **options: Any) -> Any:
    return await people.send(bench.transactor, run_id, event, payload, caller=Caller(TENANT, ACTOR), **options)


@asynccontextmanager
async def on(url: str) -> AsyncIterator[Bench]:
    """Play a scene on a fresh database."""
    async with benches(url) as (bench,):
        yield bench
        assert await bench.store.stuck_runs() == []


def broken(lines: list[Line], of: JudgedDialect) -> dict[str, list[str]]:
    """Which invariants these lines break, and what is said about it."""
    found: dict[str, list[str]] = {}
    for invariant in of.invariants:
        said: list[str] = []
        check = invariant.check(said.append)
        for line in lines:
            check(line)
        if said:
            found[invariant.name] = said
    return found


class Forgery:
    """A real log, to be made into a lie."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = copy.deepcopy(lines)

    def of(self, step: str | None, to: str | None = None) -> Iterator[int]:
        """The places of a step's (or the run's) lines."""
        for place, line in enumerate(self.lines):
            head = line["event_type"] == "journal_head"
            if not head and line["metadata"].get("step") == step and to in (None, line["to_state"]):
                yield place

    def the(self, step: str | None, to: str) -> Line:
        return self.lines[next(self.of(step, to))]

    def drop(self, step: str | None, to: str) -> Line:
        return self.lines.pop(next(self.of(step, to)))

    def put(self, before: Line, line: Line) -> None:
        self.lines.insert(self.lines.index(before), line)
