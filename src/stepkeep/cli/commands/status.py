"""`stepkeep status`, `statistics` and `workers`: the whole system in numbers, what needs attention, workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepkeep.cli.answering import table
from stepkeep.cli.arguments import opt
from stepkeep.cli.command import CommandValues, program
from stepkeep.cli.printer import console
from stepkeep.cli.render.look import span
from stepkeep.operations.runs.causes import queue_words

if TYPE_CHECKING:
    from stepkeep.operations.runs.statistics import SampledFailures, SampledRuns, StatisticsView
    from stepkeep.operations.runs.status import FailureCounts, RunCounts, Status, StatusView, WorkerList


@program.operation(
    "status",
    "status",
    fails=lambda found: found.problems,
    window=opt("--window", "DURATION", "How far back failures and recent runs are counted."),
)
def status(found: StatusView, _: CommandValues) -> Iterator[str]:
    """Say how the system stands: runs, queues, failures, workers. Exit status 1 when something needs attention."""
    from stepkeep.cli.render.tables import queues_table, workers_table

    told = found.status
    yield from _counts(told)
    for drawn in (told.queues and queues_table(told.queues), told.workers and workers_table(told.workers)):
        if drawn:
            yield ""
            console().print(drawn)
    yield ""
    for problem in told.problems:
        yield f"attention: {problem}"
    if not told.problems:
        yield "nothing needs attention"


def _counts(told: Status) -> Iterator[str]:
    live, recent, failures = told.runs.live, told.runs.recent, told.failures
    yield f"unfinished runs: {_counted(live, live.by_state)}"
    yield f"runs started since {recent.since}: {_counted(recent, recent.by_state)}"
    yield f"failed, cancelled or stopping among them: {_counted(failures, failures.by_category)}"
    late = told.late_timers
    yield f"late timers: {'' if late.is_complete else 'at least '}{late.count:,}" + (
        f", since {late.since}" if late.count else ""
    )
    for one in told.paused:
        what = "the whole tenant" if one.queue is None else queue_words(one.queue)
        yield f"paused: {what}, by {one.by} since {one.since}" + (f": {one.reason}" if one.reason else "")
    for flow in told.paused_workflows:
        said = f"paused: new runs of {flow.workflow}, by {flow.by} since {flow.since}"
        yield said + (f": {flow.reason}" if flow.reason else "")
    if told.waiting_for_slots:
        yield f"runs that wait for a slot: {told.waiting_for_slots:,} (stepkeep slots list)"
    unsearched = "not searched for among so many unfinished runs; `stepkeep db status` does"
    yield f"stuck runs: {unsearched if told.stuck_runs is None else len(told.stuck_runs)}"
    if not told.workers:
        yield "workers: none"


def _counted(part: RunCounts | FailureCounts | SampledRuns | SampledFailures, counts: dict[str, int]) -> str:
    more = "" if getattr(part, "is_complete", True) else "at least "
    about = "about " if part.is_estimate else ""
    parts = ", ".join(f"{about}{count:,} {word.replace('_', ' ')}" for word, count in counts.items())
    return f"{more}{part.total:,}" + (f" ({parts})" if parts else "")


@program.operation("statistics", "statistics", window=opt("--window", "DURATION", "How far back."))
def statistics(found: StatisticsView, _: CommandValues) -> Iterator[str]:
    """Say how the newest runs went: how many, how long they took, failures, slow steps, the backlog."""
    told = found.statistics
    yield f"runs since {told.since}: {_counted(told.runs, told.runs.by_state)}"
    took = told.durations
    if took.runs:
        shares = {"half": took.p50_seconds, "90 %": took.p90_seconds, "99 %": took.p99_seconds, "all": took.max_seconds}
        said = ", ".join(f"{share} took at most {span(seconds)}" for share, seconds in shares.items())
        yield f"of {took.runs:,} that ended, {said}"
    yield f"failed or rolled back: {_counted(told.failures, told.failures.by_category)}"
    for one in told.backlog:
        yield f"ready for {one.needs}: {one.depth:,}, the oldest for {span(one.oldest_seconds)}"
    slow = [
        {
            "step": f"{one.workflow} v{one.version} {one.step}",
            "attempts": one.attempts,
            "mean": span(one.mean_seconds),
            "longest": span(one.max_seconds),
            "run": one.run_id,
        }
        for one in told.slowest_steps
    ]
    if slow:
        table(slow, "")


@program.operation(
    "workers",
    "workers",
    live_only=opt(
        "--all",
        "Also those that were shut down.",
        kind=bool,
        by_default=False,
        typed_as="all_",
        reads=lambda wants_all, _: not wants_all,
    ),
)
def workers(found: WorkerList, _: CommandValues) -> str | None:
    """List workers."""
    if not found.workers:
        return "no workers"
    from stepkeep.cli.render.tables import workers_table

    console().print(workers_table(found.workers))
    return None
