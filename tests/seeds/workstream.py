"""Workstreams for tests of seed 004: documents in one line, a run on a bench, its log in the seed's words, a judge."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from tests.workbench import SECOND, TENANT, Bench, benches

from stepkeep.conformance.words.replay import replay_lines
from stepkeep.definition.native.reader import CheckReport
from stepkeep.definition.text.document import parse_document
from stepkeep.dialects.workstream.front import FRONT
from stepkeep.dialects.workstream.machine import JUDGED
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.machine.outcomes import Failed, Outcome, RulesFailed, RulesPassed
from stepkeep.kernel.machine.states import Category
from stepkeep.operations.logs.log import export_run, export_worker
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.operations.runs.projected import describe_run_as

Line = dict[str, Any]

BROKEN = Failed(category=Category.EXTERNAL, error="exit status 1")
HOLDS, DOES_NOT_HOLD = RulesPassed(), RulesFailed(error="the rule does not hold")
RULE = "${{ output.exit_code == 0 }}"


# -- documents -------------------------------------------------------------------------------------------------------
def task(task_id: str, *needs: str, command: Any = "true", **fields: Any) -> dict[str, Any]:
    """A task; what belongs into `execution` may be given as it is."""
    execution = {"command": command}
    for key in ("working_directory", "timeout_seconds", "max_retries", "retry_delay_seconds"):
        if key in fields:
            execution[key] = fields.pop(key)
    if "post" in fields:
        fields["validation_rules"] = {"post_execution": fields.pop("post")}
    return {"task_id": task_id, "dependencies": list(needs), "execution": execution, **fields}


def document(*tasks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"workstream_id": "ws-001", "max_duration_seconds": 3600, **fields, "tasks": list(tasks)}


def examine(written: dict[str, Any] | str) -> CheckReport:
    text = written if isinstance(written, str) else json.dumps(written, indent=1)
    source = parse_document(text, file="ws.json" if text.startswith("{") else "ws.yaml", syntax=_syntax(text))
    return FRONT.examine(source.data, source)


def _syntax(text: str) -> Any:
    return "json" if text.startswith("{") else "yaml"


def workstream(*tasks: dict[str, Any], **fields: Any) -> Definition:
    report = examine(document(*tasks, **fields))
    assert report.definition is not None, report.problems
    return report.definition


# -- runs ------------------------------------------------------------------------------------------------------------
class Floor:
    """A bench with a run on it: claim by name, report, let time pass, look."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.store, self.transactor = bench, bench.store, bench.transactor
        self.run_id = ""
        self.held: dict[str, Claim] = {}

    async def start(self, definition: Definition, **options: Any) -> str:
        self.run_id = await self.bench.start(definition, **options)
        return self.run_id

    async def claim(self, limit: int = 100) -> list[str]:
        """Take all there is; the names of what was taken."""
        claims = await self.bench.claim(limit)
        self.held |= {claim.planned.name: claim for claim in claims}
        return [claim.planned.name for claim in claims]

    async def report(self, name: str, outcome: Outcome | None = None) -> None:
        reply = await self.bench.report(self.held[name], outcome)
        assert isinstance(reply, Accepted), reply

    async def do(self, name: str, outcome: Outcome | None = None) -> None:
        """Claim what there is, and report on this task."""
        await self.claim()
        await self.report(name, outcome)

    async def pass_time(self, seconds: float) -> None:
        self.store.clock_offset += round(seconds * SECOND)
        await sweep(self.transactor)

    async def log(self) -> list[Line]:
        """The run's log in the seed's words; the judge finds nothing wrong with it."""
        lines = [line async for line in export_run(self.transactor, self.run_id, tenant=TENANT, dialect="workstream")]
        assert judged(lines) == []
        return lines

    async def worker_log(self, worker_id: str) -> list[Line]:
        lines = [line async for line in export_worker(self.transactor, worker_id, tenant=TENANT, dialect="workstream")]
        assert judged(lines) == []
        return lines

    async def life(self, name: str | None = None) -> list[str]:
        """The states that a task (or the workstream) went through."""
        return [line["to_state"] for line in lines_of(await self.log(), name)]

    async def show(self) -> dict[str, Any]:
        await self.log()
        return await describe_run_as(self.transactor, self.run_id, "workstream", tenant=TENANT)

    async def shown(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(one for one in (await self.show())["tasks"] if one["task_id"] == name)
        return found


@asynccontextmanager
async def on_floor(url: str) -> AsyncIterator[Floor]:
    async with benches(url) as [bench]:
        yield Floor(bench)


def lines_of(lines: Iterable[Line], name: str | None = None) -> list[Line]:
    """The transitions of one task, or of the workstream itself."""
    noun = "workstream" if name is None else "task"
    return [
        line
        for line in lines
        if line["event_type"] == f"{noun}_state_transition" and line["metadata"].get("step") == name
    ]


def arrow(lines: Iterable[Line], name: str | None, source: str | None, target: str) -> Line:
    """The one line of this arrow."""
    (found,) = [line for line in lines_of(lines, name) if (line["from_state"], line["to_state"]) == (source, target)]
    return found


# -- the judge -------------------------------------------------------------------------------------------------------
def judged(lines: Iterable[Line], *, sealed: bool = True) -> list[str]:
    """What the judge has to say: arrows, chain, schema, and every invariant."""
    report = replay_lines((json.dumps(line) for line in lines), JUDGED, sealed=sealed)
    return [str(finding) for finding in report.findings]


def broken_by(lines: Iterable[Line]) -> set[str]:
    """The names of the invariants that these lines break."""
    broken: set[str] = set()
    for invariant in JUDGED.invariants:
        feed = invariant.check(lambda _, name=invariant.name: broken.add(name))
        for line in lines:
            feed(line)
    return broken


def together(*logs: list[Line]) -> list[Line]:
    """Several journals as one log in the order of time, as `.state/transitions.jsonl` has them."""
    return sorted((line for log in logs for line in log), key=lambda line: line["metadata"]["at"])
