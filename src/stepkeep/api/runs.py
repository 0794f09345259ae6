"""Creating a run, with an answer at once or when it has ended; and its record: steps, journal, log, evidence."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from stepkeep.api.access import scopes_of
from stepkeep.api.handwritten import As, RequestBody, Routes
from stepkeep.api.routing import JsonAnswer, under_way, waiting
from stepkeep.definition.bounds import MAX_PRIORITY
from stepkeep.engine.groups import ActingEngine
from stepkeep.engine.result import Result
from stepkeep.engine.run_actions import StepName
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.kernel.machine.states import RunState
from stepkeep.operations.answers import Answer, Moment, says
from stepkeep.operations.definitions.publish import Newest, find_plan
from stepkeep.operations.operation import Actor, IdempotencyKey, PageLimit, RunId, Time
from stepkeep.operations.runs.following import JournalFollower
from stepkeep.operations.runs.run_answers import PastView

routes, records = Routes("Runs"), Routes("Records")

LONGEST_WAIT = 60.0
"""Seconds that one request may wait for the end of a run."""

Key = Annotated[str, Meta(max_length=255)]


class NewRunBody(RequestBody, frozen=True, kw_only=True):
    """A run to create."""

    by: Actor = None
    workflow: Annotated[Key, says("The name of a published workflow.")]
    version: Annotated[
        Annotated[int, Meta(ge=1, le=2**31 - 1)] | None, says("Which version; the highest by default.")
    ] = None
    input: Annotated[Any, says("The input of the run; an empty object by default.")] = None
    business_key: Annotated[Key | None, says("At most one live run has this key.")] = None
    correlation_id: Annotated[Key | None, says("What the run belongs to.")] = None
    priority: Annotated[Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | None, says("Higher goes first.")] = (
        None
    )
    labels: Annotated[dict[str, str] | None, says("Texts by name, for searching.")] = None
    start_now: Annotated[bool, says("False creates the run idle, to be started later.")] = True
    at: Annotated[Time | None, says("Start then; a time with a zone.")] = None
    delay: Annotated[Annotated[str, Meta(max_length=100)] | None, says("Start after this duration, such as `2h`.")] = (
        None
    )


class ResultView(Answer, kw_only=True):
    """How a run stands: its output once it has succeeded, its error once it has failed."""

    run_id: str
    state: RunState
    finished: bool
    output: Any
    error: str | None


class Created(Answer, kw_only=True):
    """The run of a creation. `created` is false where the idempotency key had created it before."""

    run_id: str
    created: bool
    result: Annotated[ResultView | UnsetType, says("With `wait`: how the run stands after it.")] = UNSET


@routes(
    "POST /runs",
    "start",
    "create_run",
    "Create a run",
    status=201,
    also="Created before by this key",
    answers=Created,
    example={"workflow": "hello", "input": {"name": "Ada"}, "labels": {"team": "a"}},
)
async def create_run(
    request: Request,
    engine: ActingEngine,
    body: NewRunBody,
    idempotency_key: IdempotencyKey = None,
    wait: Annotated[
        Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] | None,
        says("Wait this many seconds for the end, and answer with the `result`. Needs the scope read, too."),
    ] = None,
) -> JsonAnswer:
    """201 when the run is new; 200 with the same run when the key and the body came before; 422 when the key came with
    another body; 409 while a request with this key is under way. With `wait`, the answer comes when the run has ended,
    and after that time in any case: look at `finished`."""
    if wait is not None:
        # Before anything is created: a key that may not read would get no answer about its run.
        engine.access.require(*scopes_of("wait"), operation="wait")
    given = msgspec.structs.asdict(body)
    workflow, version, run_input = (given.pop(name) for name in ("workflow", "version", "input"))
    try:
        plan = await find_plan(engine.transactor, workflow, version, tenant=engine.tenant)
    except NotFound as missing:
        raise InvalidInput(str(missing)) from None
    with under_way(request, engine, "start", idempotency_key):
        started = await engine.start(
            Newest(plan) if version is None else plan, run_input, idempotency_key=idempotency_key, **given
        )
    told = Created(run_id=started.run_id, created=started.created)
    if wait is not None:
        async with waiting(request, wait):
            result = result_view(await engine.wait(started.run_id, seconds=wait))
        told = msgspec.structs.replace(told, result=result)
    return JsonAnswer(told, 201 if started.created else 200, {"Location": f"/runs/{started.run_id}"})


def result_view(found: Result) -> ResultView:
    return ResultView(
        run_id=found.run_id, state=found.state, finished=found.finished, output=found.output, error=found.error
    )


UNDER = {"run": "steps", "ioa": "steps", "linear": "workflow_step", "action": "actions", "workstream": "tasks"}
"""Where a dialect's view of a run has its steps."""


class Steps(Answer, kw_only=True):
    """The steps of a run, with their attempts (`history`). With `as`, the shape of the dialect."""

    run_id: str
    steps: Any


class StepAttempts(Answer, kw_only=True):
    """The attempts of a step, oldest first, each with its evidence."""

    run_id: str
    step: str
    attempts: list[Any]


class EntryView(Answer, kw_only=True):
    """One entry of a journal: the lines of the exported log, and with `raw` the bytes that the hash covers."""

    run_id: str
    seq: int
    at: Moment
    hash: str
    lines: list[dict[str, Any]]
    body: str | UnsetType = UNSET


class JournalPage(Answer, kw_only=True):
    """A page of a journal in order."""

    run_id: str
    entries: list[EntryView]
    next: Annotated[str | None, says("The `after` of the next page; null at the end.")]


class CostOfStep(Answer, kw_only=True):
    """What a step cost, by kind."""

    name: str
    state: str
    cost: dict[str, float]


class Cost(Answer, kw_only=True):
    """What a run cost, by kind (`usd`, `tokens`, …), and what each of its steps did."""

    run_id: str
    cost: dict[str, float]
    steps: list[CostOfStep]


class CertificateView(Answer, kw_only=True):
    """The judge's certificate of a run, and of every run below it."""

    verdict: str
    ok: bool
    run: str
    tree: Annotated[dict[str, Any] | None, says("The verdicts about the runs below it, if it has children.")] = None
    chain: Annotated[dict[str, Any] | None, says("The runs beside it, if its flow continued as new.")] = None


@records("GET /runs/{run_id}/result", "wait", "get_result", "Wait for the result of a run")
async def get_result(
    request: Request,
    engine: ActingEngine,
    run_id: RunId,
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="Seconds to wait for the end.")] = 0.0,
    until_blocked: Annotated[bool, says("A run that waits for people or messages is enough.")] = False,
) -> ResultView:
    """Answers at once when the run has ended, and after `wait` seconds in any case: look at `finished`."""
    async with waiting(request, wait):
        return result_view(await engine.wait(run_id, seconds=wait, until_blocked=until_blocked))


@records(
    "GET /runs/{run_id}/steps",
    "show",
    "list_steps",
    "List the steps of a run",
    tag="Steps",
    done="The steps",
    answers=Steps,
)
async def list_steps(engine: ActingEngine, run_id: RunId, as_: As = None) -> Any:
    """In the order of the plan. With `as`, in the dialect's words."""
    if as_ is None:
        return Steps(run_id=run_id, steps=(await engine.show(run_id)).steps)
    found = (await engine.show(run_id, as_=as_))[UNDER[as_]]
    return found if isinstance(found, dict) else Steps(run_id=run_id, steps=found)


@records(
    "GET /runs/{run_id}/steps/{step:path}/attempts", "show", "list_attempts", "List the attempts of a step", tag="Steps"
)
async def list_attempts(engine: ActingEngine, run_id: RunId, step: StepName) -> StepAttempts:
    """With what each attempt was given, its traceback and its log lines, as far as they are kept."""
    view = await engine.show(run_id, step=step)
    return StepAttempts(run_id=run_id, step=step, attempts=view.step["history"])


@records(
    "GET /runs/{run_id}/journal",
    "log",
    "get_journal",
    "Read the journal of a run",
    answers=JournalPage,
)
async def get_journal(
    engine: ActingEngine,
    run_id: RunId,
    after: Annotated[int, Meta(ge=0, le=2**43, description="The `seq` of the last entry that is known.")] = 0,
    limit: PageLimit = 100,
    raw: Annotated[bool, says("Add the bytes that the hash covers.")] = False,
    as_: As = None,
) -> Mapping[str, object]:
    """In order, without gaps. With `as`, the lines are in the dialect's words; some entries then have none."""
    follower = JournalFollower(engine.transactor, run_id, tenant=engine.tenant, dialect=as_)
    await follower.begin(after)
    found = await follower.read(limit)
    entries = found if raw else [{name: value for name, value in one.items() if name != "body"} for one in found]
    more = len(found) == limit
    return {"run_id": run_id, "entries": entries, "next": str(follower.seq) if more else None}


@records(
    "GET /runs/{run_id}/log",
    "log",
    "export_log",
    "Export the log of a run",
    done="One JSON object per line",
    media="application/jsonl",
)
async def export_log(engine: ActingEngine, run_id: RunId, as_: As = None) -> Response:
    """What `stepkeep log export` writes, and `stepkeep log verify` checks."""
    lines = await engine.log(run_id, as_=as_)
    return Response(b"".join(line + b"\n" for line in lines), media_type="application/jsonl")


@records("GET /runs/{run_id}/cost", "show", "get_cost", "What a run cost")
async def get_cost(engine: ActingEngine, run_id: RunId) -> Cost:
    view = await engine.show(run_id)
    steps = [CostOfStep(name=one.name, state=one.state, cost=one.cost) for one in view.steps]
    return Cost(run_id=run_id, cost=view.run.cost, steps=steps)


@records("GET /runs/{run_id}/past", "show", "show_past_run", "Show a run as it stood")
async def show_past_run(
    engine: ActingEngine,
    run_id: RunId,
    seq: Annotated[Annotated[int, Meta(ge=1, le=2**31)] | None, says("After this entry of the journal.")] = None,
    time: Annotated[Time | None, says("At this time.")] = None,
) -> PastView:
    """The run after an entry of its journal, or at a time, told from the journal alone; without both, at its end."""
    if seq is not None and time is not None:
        raise InvalidInput("give `seq` or `time`, not both.")
    return await engine.show(run_id, at=seq or time or datetime.max.replace(tzinfo=UTC))


@records("GET /runs/{run_id}/certificate", "certify", "certify_run", "Judge a run", answers=CertificateView)
async def certify_run(engine: ActingEngine, run_id: RunId) -> Mapping[str, object]:
    """The judge looks at the journal, the log in every dialect, the definition and the payloads."""
    return (await engine.certify(run_id)).as_json()


@records(
    "GET /runs/{run_id}/evidence",
    "evidence",
    "get_evidence",
    "The evidence pack of a finished run",
    done="An archive",
    media="application/zip",
)
async def get_evidence(
    engine: ActingEngine, run_id: RunId, payloads: Annotated[bool, says("With inputs and outputs.")] = True
) -> Response:
    """An archive that an auditor verifies without Stepkeep. The service signs none: `stepkeep evidence` does."""
    packed = await engine.evidence(run_id, payloads=payloads)
    name = f'attachment; filename="evidence-{run_id}.zip"'
    return Response(packed, media_type="application/zip", headers={"Content-Disposition": name})
