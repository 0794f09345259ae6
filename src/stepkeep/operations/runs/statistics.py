"""How the newest runs of a tenant went, in all and by workflow: how many there were over time, how long they took, why
they failed, which steps are slow, and how old the backlog is.

Every number comes from the runs of a window: from all of few, from a sample of many, which is called an estimate. It
decides nothing. `engine.statistics` and the overview of the web pages call it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from msgspec import field

from stepkeep.kernel.errors import StepkeepError
from stepkeep.kernel.machine.states import AttemptState, RunState
from stepkeep.kernel.plan import Plan
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.instants import instant
from stepkeep.operations.logs.retention import created_at, first_id_at
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs import counting
from stepkeep.operations.runs.causes import SECOND
from stepkeep.operations.runs.counting import Sample, sample_recent
from stepkeep.operations.runs.diagnosis import read_staff
from stepkeep.operations.runs.staffing import title
from stepkeep.store.records import RecentAttempt, RecentRun

MOST_RUNS = 5_000
"""So many runs of a window are looked at; of more, a sample of about this size."""
MOST_ENDED = 1_000
"""Of how many ended runs the attempts are read: of more, some from the whole window."""
MOST_ATTEMPTS = 10_000
MOST_WORKFLOWS = 200
BUCKETS = 30
SHARES = {"p50_seconds": 0.5, "p90_seconds": 0.9, "p99_seconds": 0.99}
SLOWEST = 10
NEWEST = 10
FAILED = frozenset((RunState.FAILED, RunState.ROLLED_BACK))
UNSUCCESSFUL = frozenset((AttemptState.FAILED, AttemptState.TIMED_OUT, AttemptState.LOST))


class SampledRuns(Answer, kw_only=True):
    """How many runs there were in each state."""

    total: int
    is_complete: Annotated[bool, says("False where there are at least as many.")]
    is_estimate: Annotated[bool, says("Whether the parts are scaled from a sample.")]
    looked_at: int
    by_state: dict[str, int]


class Span(Answer, kw_only=True):
    """How many runs were created in a span of time, by what became of them."""

    at: str | None
    succeeded: int
    failed: int
    other: int


class Durations(Answer, kw_only=True):
    """How long ended runs took: so many of them ended within so many seconds."""

    runs: int
    p50_seconds: float | None = None
    p90_seconds: float | None = None
    p99_seconds: float | None = None
    max_seconds: float | None = None


class SampledFailures(Answer, kw_only=True):
    """How many runs failed, by category."""

    total: int
    is_estimate: bool
    by_category: dict[str, int]


class OpenWork(Answer, kw_only=True):
    """The ready steps of a queue: `depth` (`ready` in JSON), and the age of the oldest."""

    needs: str
    depth: int = field(name="ready")
    is_complete: bool
    oldest_seconds: float


class WorkflowNumbers(Answer, kw_only=True):
    """How the runs of a workflow went. `started` and `failed_in` have the spans of `throughput`."""

    workflow: str
    runs: int
    succeeded: int
    failed: Annotated[int, says("Failed or rolled back.")]
    p50_seconds: Annotated[float | None, says("Null where none has ended.")]
    p95_seconds: float | None
    newest_at: str | None
    started: list[int]
    failed_in: list[int]


class SlowStep(Answer, kw_only=True):
    """A step whose attempts took long on average, with the run of its longest attempt."""

    workflow: str
    version: int
    step: str
    attempts: int
    failed: Annotated[int, says("How many of the attempts did not succeed.")]
    mean_seconds: float
    max_seconds: float
    run_id: str


class EndedRun(Answer, kw_only=True):
    """A run that has ended."""

    run_id: str
    workflow: str | None
    state: RunState
    ended_at: str | None


class Statistics(Answer, kw_only=True):
    """How the newest runs went."""

    at: str | None
    since: str | None
    runs: SampledRuns
    throughput: list[Span]
    durations: Durations
    failures: SampledFailures
    workflows: Annotated[list[WorkflowNumbers], says("By how many runs they had, at most 200.")]
    backlog: list[OpenWork]
    slowest_steps: list[SlowStep]
    newest_ends: list[EndedRun]


class StatisticsView(Answer, kw_only=True):
    """How the newest runs of the tenant went."""

    statistics: Statistics


async def read_statistics(transactor: Transactor, *, tenant: str, window: int) -> StatisticsView:
    """The numbers of one tenant. `window` (microseconds) says how far back the newest runs are looked at."""
    store = transactor.store
    now = await store.now()
    since = max(0, now - window)
    after = first_id_at(since)
    newest = await store.read_recent_runs(tenant, after=after, limit=MOST_RUNS)
    is_estimate = len(newest) >= MOST_RUNS
    sample = await sample_recent(store, tenant, after) if is_estimate else Sample(runs=newest, total=len(newest))
    runs = sample.runs
    chosen = spread_out([one.id for one in runs if one.ended_at is not None], MOST_ENDED)
    attempts = await store.read_recent_attempts(tenant, chosen, limit=MOST_ATTEMPTS)
    # The spans of time begin with the oldest run that was looked at: a young or a busy system fills all of them.
    first = max(since, created_at(runs[-1].id)) if runs else since
    ended = sorted((one for one in {*newest, *runs} if one.ended_at is not None), key=_latest)[:NEWEST]
    definitions = {one.id: one.definition_id for one in (*runs, *ended)}
    plans = await read_plans(transactor, set(definitions.values()))
    failures = sample.count(one.category or "none" for one in runs if one.state in FAILED)
    return StatisticsView(
        statistics=Statistics(
            at=instant(now),
            since=instant(since),
            runs=SampledRuns(
                total=sample.total,
                is_complete=sample.total < counting.MOST,
                is_estimate=is_estimate,
                looked_at=len(runs),
                by_state=sample.count(one.state for one in runs),
            ),
            throughput=throughput(sample, first, now),
            durations=durations(one.ended_at - one.started_at for one in runs if one.ended_at and one.started_at),
            failures=SampledFailures(total=sum(failures.values()), is_estimate=is_estimate, by_category=failures),
            workflows=by_workflow(sample, plans, first, now),
            backlog=await _backlog(transactor, tenant, now),
            slowest_steps=slowest(attempts, definitions, plans),
            newest_ends=_ends(ended, plans),
        )
    )


def throughput(sample: Sample, first: int, last: int) -> list[Span]:
    """Equal spans of time with how many runs were created in each, by what became of them."""
    counts = sample.count((place_in(created_at(one.id), first, last), fate(one)) for one in sample.runs)
    return [
        Span(
            at=instant(first + number * width_of(first, last)),
            **{kind: counts.get((number, kind), 0) for kind in ("succeeded", "failed", "other")},
        )
        for number in range(BUCKETS)
    ]


def width_of(first: int, last: int) -> int:
    """How long each span of a window is."""
    return max(SECOND, -(-(last - first) // BUCKETS))


def place_in(at: int, first: int, last: int) -> int:
    """The span of a window in which a moment is."""
    return min(BUCKETS - 1, max(0, (at - first) // width_of(first, last)))


def fate(run: RecentRun) -> str:
    """What became of a run: succeeded, failed, or other."""
    return "succeeded" if run.state == RunState.SUCCEEDED else "failed" if run.state in FAILED else "other"


def spread_out(ids: Sequence[str], most: int) -> Sequence[str]:
    """At most so many of them, from the whole range."""
    return ids[:: max(1, -(-len(ids) // most))]


def by_workflow(sample: Sample, plans: Mapping[int, Plan], first: int, last: int) -> list[WorkflowNumbers]:
    """The same numbers for each workflow, those with most runs first."""
    groups: dict[str, list[RecentRun]] = {}
    for one in sample.runs:
        if one.definition_id in plans:
            groups.setdefault(plans[one.definition_id].definition.name, []).append(one)
    scale = sample.total / len(sample.runs) if sample.runs else 0.0

    def numbers(name: str, runs: Sequence[RecentRun]) -> WorkflowNumbers:
        fates, failed = Counter(map(fate, runs)), [one for one in runs if one.state in FAILED]
        taken = sorted(one.ended_at - one.started_at for one in runs if one.ended_at and one.started_at)
        return WorkflowNumbers(
            workflow=name,
            runs=round(len(runs) * scale),
            succeeded=round(fates["succeeded"] * scale),
            failed=round(fates["failed"] * scale),
            p50_seconds=_share_of(taken, 0.5),
            p95_seconds=_share_of(taken, 0.95),
            newest_at=instant(max(created_at(one.id) for one in runs)),
            started=spans_of((created_at(one.id) for one in runs), first, last, scale),
            failed_in=spans_of((created_at(one.id) for one in failed), first, last, scale),
        )

    told = [numbers(name, runs) for name, runs in groups.items()]
    return sorted(told, key=lambda one: (-one.runs, one.workflow))[:MOST_WORKFLOWS]


def spans_of(moments: Iterable[int], first: int, last: int, scale: float = 1.0) -> list[int]:
    """How many moments are in each span of a window."""
    counts = Counter(place_in(at, first, last) for at in moments)
    return [round(counts[number] * scale) for number in range(BUCKETS)]


def _share_of(ordered: Sequence[int], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / SECOND if ordered else None


def _latest(run: RecentRun) -> tuple[int, str]:
    return -(run.ended_at or 0), run.id


def durations(taken: Iterable[int]) -> Durations:
    """How long ended runs took: so many of them ended within so many seconds."""
    ordered = sorted(taken)
    if not ordered:
        return Durations(runs=0)
    return Durations(
        runs=len(ordered),
        **{name: _share_of(ordered, share) for name, share in SHARES.items()},
        max_seconds=ordered[-1] / SECOND,
    )


def slowest(
    attempts: Sequence[RecentAttempt], definitions: Mapping[str, int], plans: Mapping[int, Plan]
) -> list[SlowStep]:
    """The steps whose attempts took longest on average, each with the run of its longest attempt. `definitions` has the
    definition of each run."""
    steps: dict[tuple[int, str], list[RecentAttempt]] = {}
    for one in attempts:
        if (definition_id := definitions[one.run_id]) in plans:
            steps.setdefault((definition_id, step_name(plans[definition_id], one.no)), []).append(one)
    views: list[SlowStep] = []
    for (definition_id, name), those in steps.items():
        plan = plans[definition_id]
        longest = max(those, key=lambda one: one.taken)
        views.append(
            SlowStep(
                workflow=plan.definition.name,
                version=plan.definition.version,
                step=name,
                attempts=len(those),
                failed=sum(one.state in UNSUCCESSFUL for one in those),
                mean_seconds=sum(one.taken for one in those) / len(those) / SECOND,
                max_seconds=longest.taken / SECOND,
                run_id=longest.run_id,
            )
        )
    return sorted(views, key=lambda one: -one.mean_seconds)[:SLOWEST]


def step_name(plan: Plan, no: int) -> str:
    """The name of a step; for an element of a map and a call of a flow, that of the step that owns it."""
    return plan.within(plan.at(no)) if plan.is_element(no) else plan.name_of(no) or f"step {no}"


async def read_plans(transactor: Transactor, ids: set[int]) -> dict[int, Plan]:
    """The plans of definitions, from the cache where they are known. One that cannot be read is left out."""
    missing = [one for one in ids if transactor.plans.get(one) is None]
    if missing:
        for stored in (await transactor.store.read_definitions(missing)).values():
            try:
                transactor.plans.add(stored)
            except StepkeepError:
                continue
    return {one: plan for one in ids if (plan := transactor.plans.get(one)) is not None}


async def _backlog(transactor: Transactor, tenant: str, now: int) -> list[OpenWork]:
    staff = await read_staff(transactor.store, tenant)
    found = await transactor.store.read_backlog(sorted(staff.specs), counting.MOST)
    return [
        OpenWork(
            needs=title(staff.specs[one.queue]),
            depth=one.depth,
            is_complete=one.depth < counting.MOST,
            oldest_seconds=max(0, now - one.oldest_at) / SECOND,
        )
        for one in sorted(found, key=lambda one: one.oldest_at)
    ]


def _ends(ended: Sequence[RecentRun], plans: Mapping[int, Plan]) -> list[EndedRun]:
    return [
        EndedRun(
            run_id=one.id,
            workflow=None if (plan := plans.get(one.definition_id)) is None else plan.definition.name,
            state=RunState(one.state),
            ended_at=instant(one.ended_at),
        )
        for one in ended
    ]
