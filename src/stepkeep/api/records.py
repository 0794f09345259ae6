"""The record of a run: result, past, journal, log, cost, explanation, certificate, evidence pack, policy replay."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from stepkeep.api.bodies import Anything, As, Limit, Moment, Page
from stepkeep.api.routing import Answer, Engine, answers, router, waiting
from stepkeep.api.runs import LONGEST_WAIT, ResultView, RunId, result_view
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.states import RunState
from stepkeep.operations.following import JournalFollower

routes = router("Records")


class PastEntry(BaseModel):
    """The entry of the journal after which the run is shown, its cause, and the number of the last entry."""

    seq: int
    time: Moment
    event: str
    actor: str
    last_seq: int


class PastStepView(BaseModel):
    """A step as it stood. `output_unknown` says why its output cannot be shown."""

    no: int
    name: str
    phase: str
    state: str
    since: Moment
    attempt: int | None
    fence: int
    holder: str | None
    due_at: Moment | None
    category: str | None
    error: str | None
    output: Any
    output_unknown: str | None = None


class PastRunView(BaseModel):
    """A run as it stood."""

    id: str
    workflow: str
    version: int
    state: RunState
    since: Moment
    category: str | None
    error: str | None
    input: Any
    input_unknown: str | None = None


class PastView(BaseModel):
    """A run and its steps after an entry of its journal, and what the judge found in the entries up to it."""

    at: PastEntry
    run: PastRunView
    steps: list[PastStepView]
    findings: list[Anything]


class FieldOfBoth(BaseModel):
    """A field that differs between two runs, or between a step of both."""

    field: str
    first: Any = None
    second: Any = None


class StepOfBoth(BaseModel):
    """A step that differs, or that one run alone has; `seconds` from its start to its end in each."""

    name: str
    only_in: str | None
    differences: list[FieldOfBoth]
    seconds: list[float | None]


class RunDifferences(BaseModel):
    """What differs between two runs."""

    first: str
    second: str
    same: bool
    run: list[FieldOfBoth]
    steps: list[StepOfBoth]


class EntryView(BaseModel):
    """One entry of a journal: the lines of the exported log, and with `raw` the bytes that the hash covers."""

    run_id: str
    seq: int
    at: Moment
    hash: str
    lines: list[Anything]
    body: str | None = None


class Journal(Page):
    """A page of a journal in order."""

    run_id: str
    entries: list[EntryView]


class StepCost(BaseModel):
    """What a step cost, by kind."""

    name: str
    state: str
    cost: dict[str, float]


class Cost(BaseModel):
    """What a run cost, by kind (`usd`, `tokens`, …), and what each of its steps did."""

    run_id: str
    cost: dict[str, float]
    steps: list[StepCost]


class PausedBy(BaseModel):
    """The pause that holds something back, and that has to end first."""

    scope: Literal["run", "queue", "tenant"]
    queue: str | None = Field(description="Of a queue: its name; the default queue is empty.")


class CauseView(BaseModel):
    """Why something does not move, and the command that moves it."""

    code: str
    subject: str
    sentence: str
    since: str | None
    until: str | None
    command: str | None = Field(description="Null where nothing is to be done, or where the caller may not do it.")
    people: dict[str, Any] | None = Field(default=None, description="Of a wait for people: who may act, who may not.")
    pause: PausedBy | None = Field(default=None, description="Of the code `paused`: what is paused.")


class Explanation(BaseModel):
    """A chain of causes, most urgent first."""

    subject: str
    state: str
    stuck: bool
    causes: list[CauseView]
    continues: dict[str, Any] | None = Field(default=None, description="Of a run: the one it repeats or continues.")
    continued_by: list[str] | None = Field(default=None, description="Of a run: those that repeat or continue it.")


class CertificateView(BaseModel):
    """The judge's certificate of a run, and of every run below it."""

    verdict: str
    ok: bool
    run: str
    tree: Anything | None = Field(default=None, description="The verdicts about the runs below it, if it has children.")
    chain: Anything | None = Field(default=None, description="The runs beside it, if its flow continued as new.")


class Replay(BaseModel):
    """Every verdict of a policy in a run, evaluated again."""

    run: str
    ok: bool
    verdicts: list[Anything]


@routes.get(
    "/runs/{run_id}/result",
    operation_id="get_result",
    summary="Wait for the result of a run",
    response_model=None,
    responses=answers(ResultView),
)
async def get_result(
    request: Request,
    engine: Engine,
    run_id: RunId,
    wait: Annotated[
        float, Query(ge=0, le=LONGEST_WAIT, allow_inf_nan=False, description="Seconds to wait for the end.")
    ] = 0.0,
    until_blocked: Annotated[bool, Query(description="A run that waits for people or messages is enough.")] = False,
) -> Answer:
    """Answers at once when the run has ended, and after `wait` seconds in any case: look at `finished`."""
    async with waiting(request, wait):
        return Answer(result_view(await engine.wait(run_id, seconds=wait, until_blocked=until_blocked)))


@routes.get(
    "/runs/{run_id}/journal",
    operation_id="get_journal",
    summary="Read the journal of a run",
    response_model=None,
    responses=answers(Journal),
)
async def get_journal(
    engine: Engine,
    run_id: RunId,
    after: Annotated[int, Query(ge=0, le=2**43, description="The `seq` of the last entry that is known.")] = 0,
    limit: Limit = 100,
    raw: Annotated[bool, Query(description="Add the bytes that the hash covers.")] = False,
    as_: As = None,
) -> Answer:
    """In order, without gaps. With `as`, the lines are in the dialect's words; some entries then have none."""
    follower = JournalFollower(engine.transactor, run_id, tenant=engine.tenant, dialect=as_)
    await follower.begin(after)
    found = await follower.read(limit)
    entries = found if raw else [{name: one[name] for name in one if name != "body"} for one in found]
    more = len(found) == limit
    return Answer({"run_id": run_id, "entries": entries, "next": str(follower.seq) if more else None})


@routes.get(
    "/runs/{run_id}/log",
    operation_id="export_log",
    summary="Export the log of a run",
    response_model=None,
    responses={200: {"description": "One JSON object per line", "content": {"application/jsonl": {}}}},
)
async def export_log(engine: Engine, run_id: RunId, as_: As = None) -> Response:
    """What `stepkeep log export` writes, and `stepkeep log verify` checks."""
    lines = await engine.log(run_id, as_=as_)
    return Response(b"".join(line + b"\n" for line in lines), media_type="application/jsonl")


@routes.get(
    "/runs/{run_id}/cost",
    operation_id="get_cost",
    summary="What a run cost",
    response_model=None,
    responses=answers(Cost),
)
async def get_cost(engine: Engine, run_id: RunId) -> Answer:
    view = await engine.show(run_id)
    steps = [{"name": one["name"], "state": one["state"], "cost": one["cost"]} for one in view["steps"]]
    return Answer({"run_id": run_id, "cost": view["run"]["cost"], "steps": steps})


@routes.get(
    "/runs/{run_id}/past",
    operation_id="show_past_run",
    summary="Show a run as it stood",
    response_model=None,
    responses=answers(PastView),
)
async def show_past_run(
    engine: Engine,
    run_id: RunId,
    seq: Annotated[int | None, Query(ge=1, le=2**31, description="After this entry of the journal.")] = None,
    time: Annotated[AwareDatetime | None, Query(description="At this time.")] = None,
) -> Answer:
    """The run after an entry of its journal, or at a time, told from the journal alone; without both, at its end."""
    if seq is not None and time is not None:
        raise InvalidInput("give `seq` or `time`, not both.")
    return Answer(await engine.show(run_id, at=seq or time or datetime.max.replace(tzinfo=UTC)))


@routes.get(
    "/runs/{run_id}/compare",
    operation_id="compare_runs",
    summary="Compare two runs",
    response_model=None,
    responses=answers(RunDifferences),
)
async def compare_runs(
    engine: Engine, run_id: RunId, other: Annotated[str | None, Query(max_length=36, description="Its id.")] = None
) -> Answer:
    """What differs between two runs, step by step; without another one, the run that this one repeats."""
    if other is None:
        other = (await engine.show(run_id))["run"]["rerun_of"] or run_id
    return Answer(await engine.compare_runs(other, run_id))


@routes.get(
    "/runs/{run_id}/explain",
    operation_id="explain_run",
    summary="Why does a run not move?",
    response_model=None,
    responses=answers(Explanation),
)
async def explain_run(
    engine: Engine, run_id: RunId, step: Annotated[str | None, Query(max_length=255, description="One step.")] = None
) -> Answer:
    """A chain of causes that ends in a person, a clock, a limit or a fault."""
    return Answer(await engine.explain(run_id, step))


@routes.get(
    "/runs/{run_id}/certificate",
    operation_id="certify_run",
    summary="Judge a run",
    response_model=None,
    responses=answers(CertificateView),
)
async def certify_run(engine: Engine, run_id: RunId) -> Answer:
    """The judge looks at the journal, the log in every dialect, the definition and the payloads."""
    return Answer((await engine.certify(run_id)).as_json())


@routes.get(
    "/runs/{run_id}/evidence",
    operation_id="get_evidence",
    summary="The evidence pack of a finished run",
    response_model=None,
    responses={200: {"description": "An archive", "content": {"application/zip": {}}}},
)
async def get_evidence(
    engine: Engine, run_id: RunId, payloads: Annotated[bool, Query(description="With inputs and outputs.")] = True
) -> Response:
    """An archive that an auditor verifies without Stepkeep. The service signs none: `stepkeep evidence` does."""
    packed = await engine.evidence(run_id, payloads=payloads)
    name = f'attachment; filename="evidence-{run_id}.zip"'
    return Response(packed, media_type="application/zip", headers={"Content-Disposition": name})


@routes.get(
    "/runs/{run_id}/policy",
    operation_id="replay_policy",
    summary="Evaluate the verdicts of a run again",
    response_model=None,
    responses=answers(Replay),
)
async def replay_policy(engine: Engine, run_id: RunId) -> Answer:
    return Answer(await engine.replay_policy(run_id))
