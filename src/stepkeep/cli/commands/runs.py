"""`stepkeep runs`, `quarantine` and `jobs`: which runs there are, which are set aside, and what is done to many."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import UNSET
from msgspec.structs import replace

from stepkeep.cli.answering import find_run, of_run, open_engine, print_answer, print_value, table
from stepkeep.cli.arguments import (
    CURSOR,
    As,
    By,
    OfBusinessKey,
    OfCorrelationId,
    OfWorkflow,
    Roots,
    Text,
    Texts,
    arg,
    opt,
    run_filter,
)
from stepkeep.cli.command import Commands, CommandValues, program
from stepkeep.cli.printer import console
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.continuation.jobs import JobList, JobView
    from stepkeep.operations.continuation.quarantine import QuarantineView
    from stepkeep.operations.runs.run_answers import LookedAt, RunList


DEFAULT_LIMIT = 20
MOST_PARTS = 20
"""A search that has found less than a page goes on for this many parts."""


@program.command("runs")
def runs(
    settings: Settings,
    text: Annotated[Text, arg("TEXT", "Only runs that have this anywhere.")] = None,
    state: Annotated[Texts, opt("--state", "STATE", "Only runs in this state; may be repeated.")] = None,
    workflow: OfWorkflow = None,
    business_key: OfBusinessKey = None,
    correlation_id: OfCorrelationId = None,
    label: Annotated[Texts, opt("--label", "NAME=TEXT", "Only runs with this label; may be repeated.")] = None,
    since: Annotated[Text, opt("--since", "TIME", "Created since: 2026-11-03T10:15Z, or 2h ago.")] = None,
    until: Annotated[Text, opt("--until", "TIME", "Created until then.")] = None,
    error: Annotated[Text, opt("--error", "TEXT", "Only runs with this in their error.")] = None,
    roots: Roots = False,
    limit: Annotated[int, opt("--limit", "At most this many.", bounds_of="runs limit")] = DEFAULT_LIMIT,
    before: Annotated[Text, CURSOR] = None,
    every: Annotated[bool, opt("--all", "Look at every run for labels and texts.", show_default=False)] = False,
    as_: As = None,
) -> int:
    """List runs, newest first, and how many there are."""
    filters = {name: value for name, value in run_filter(locals()).items() if value is not None}
    if as_ is not None:
        return _in_words(settings, filters, limit, before, as_)
    found = asyncio.run(_list(settings, filters, limit, before, every))
    unreadable, again = found.unreadable or [], _again(locals())

    def words() -> Iterator[str]:
        if found.runs:
            yield _table(found, before)
            if len(found.runs) == limit:
                yield f"older ones: {settings.command('runs', *again, '--cursor', found.runs[-1].id)}"
        elif found.looked_at and not unreadable:
            yield "no such run was found so far"
        else:
            yield _none(settings, any(filters.values()) or before, unreadable)
        if found.looked_at:
            yield _looked_at(found.looked_at)
            yield f"look further: {settings.command('runs', *again, '--all')}"
        yield from (set_aside(run.quarantined) for run in found.runs if run.quarantined)
        yield from (damaged.message for damaged in unreadable)

    return print_value(settings, found, words(), failed=unreadable)


def _table(found: RunList, before: str | None) -> str:
    """Draw the runs; how many there are."""
    from stepkeep.cli.render.tables import runs_table

    screen = console()
    screen.print(runs_table(found.runs, screen.width))
    more = "" if found.is_complete else "at least "
    return f"{more}{found.total:,} {'in all' if before is None else 'from there on'}"


def _in_words(settings: Settings, filters: Mapping[str, Any], limit: int, before: str | None, as_: str) -> int:
    """The same in the words of a dialect."""

    async def read(engine: AsyncEngine) -> Mapping[str, Any]:
        last = None if before is None else await find_run(engine, before)
        return await engine.runs(**_known(filters), limit=limit, before=last, as_=as_)

    def words(found: Mapping[str, Any]) -> Iterator[str]:
        if found["runs"]:
            table(found["runs"], "")
        else:
            yield _none(settings, any(filters.values()) or before, found.get("unreadable", []))
        yield from (run["message"] for run in found.get("unreadable", []))

    return print_answer(settings, read, words, fails=lambda found: found.get("unreadable"))


def _none(settings: Settings, filtered: object, unreadable: Sequence[object]) -> str:
    which = "readable runs" if unreadable else "such runs" if filtered else "runs"
    return f"no {which} in {settings.source}"


def _looked_at(part: LookedAt) -> str:
    """What a search looked at that ended before the last run, and how to narrow it."""
    of = "" if part.of is None else f" of {'at least ' if part.of_at_least else ''}{part.of:,}"
    narrower = "--state, --workflow, --since and --until narrow a search"
    return f"looked at the newest {part.runs:,}{of} runs, back to {part.back_to}; {narrower}"


def _again(given: Mapping[str, Any]) -> list[str]:
    """The filters of this command as they were typed, for the next page."""
    words = [] if given["text"] is None else [given["text"]]
    for name in ("state", "workflow", "business_key", "correlation_id", "label", "since", "until", "error"):
        value = given[name]
        for one in value if isinstance(value, list) else [] if value is None else [value]:
            words += [f"--{name.replace('_', '-')}", one]
    words += ["--roots"] if given["roots"] else []
    return words if given["limit"] == DEFAULT_LIMIT else [*words, "--limit", str(given["limit"])]


def _known(filters: Mapping[str, Any]) -> Mapping[str, Any]:
    """The filters, whose states must be known."""
    from stepkeep.kernel.machine.states import RunState

    if unknown := [state for state in filters.get("state", ()) if state not in list(RunState)]:
        raise InvalidInput(f"{unknown[0]!r} is no state of a run. Choose from {', '.join(RunState)}.")
    return filters


async def _list(settings: Settings, filters: Mapping[str, Any], limit: int, before: str | None, every: bool) -> RunList:
    async with open_engine(settings) as engine:
        last = None if before is None else await find_run(engine, before)
        found: RunList = await engine.runs(**_known(filters), limit=limit, before=last)
        parts = 1
        while found.looked_at and (every or (len(found.runs) < limit and parts < MOST_PARTS)):
            found, parts = await _continue_run(engine, filters, limit, found, found.looked_at), parts + 1
        return found


async def _continue_run(
    engine: AsyncEngine, filters: Mapping[str, Any], limit: int, found: RunList, looked_at: LookedAt
) -> RunList:
    """The answer together with that of the next part."""
    left = limit - len(found.runs)
    part: RunList = await engine.runs(**filters, limit=max(1, left), before=looked_at.last)
    runs = [*found.runs, *part.runs[:left]]
    return replace(
        part,
        runs=runs,
        total=found.total + part.total,
        next=runs[-1].id if len(runs) >= limit else part.next,
        looked_at=part.looked_at
        and replace(
            part.looked_at,
            runs=part.looked_at.runs + looked_at.runs,
            of=looked_at.of,
            of_at_least=looked_at.of_at_least,
        ),
        unreadable=[*(found.unreadable or ()), *(part.unreadable or ())] or UNSET,
    )


@program.command("quarantine")
def quarantine(
    settings: Settings,
    run: Annotated[Text, arg("[RUN]", "The run to set aside; a part of its id is enough.")] = None,
    reason: Annotated[Text, opt("--reason", "TEXT", "Why; kept with the quarantine.")] = None,
    by: By = None,
    release: Annotated[Text, opt("--release", "RUN", "End the quarantine of this run instead.")] = None,
    listed: Annotated[bool, opt("--list", "List the runs that are set aside instead.")] = False,
    history: Annotated[bool, opt("--history", "With --list: also those that were released.")] = False,
) -> int:
    """Set a run aside: nothing claims, moves, sweeps or deletes it until it is released.

    It works on a run whose rows cannot be read, too. The decision, its actor and its reason are kept permanently.
    """
    if sum((run is not None, release is not None, listed)) != 1:
        raise InvalidInput("Say what to do: name a RUN, or give --release RUN, or --list.")
    if history and not listed:
        raise InvalidInput("--history goes with --list.")
    if listed:
        nothing = "no run was ever quarantined" if history else "no run is quarantined"
        return print_answer(
            settings,
            lambda engine: engine.quarantined(history=history),
            lambda found: [set_aside(one) for one in found.quarantined] or nothing,
        )
    if reason is None:
        raise InvalidInput("Say why: --reason TEXT.")
    why = reason
    if release is not None:
        return print_answer(
            settings,
            of_run(release, lambda engine, found: engine.release(found, reason=why, by=by)),
            lambda one: f"run {one.run} is released by {one.released_by}: {one.release_reason}",
            under="quarantine",
        )
    return print_answer(
        settings,
        of_run(run or "", lambda engine, found: engine.quarantine(found, reason=why, by=by)),
        lambda one: f"run {one.run} is quarantined by {one.by}: {one.reason}",
        under="quarantine",
    )


def set_aside(one: QuarantineView | Mapping[str, Any]) -> str:
    """One line about a quarantine."""
    line = f"run {one['run']} quarantined by {one['by']} at {one['at']}: {one['reason']}"
    if one["released_at"] is None:
        return line
    return f"{line}; released by {one['released_by']} at {one['released_at']}: {one['release_reason']}"


jobs = Commands("jobs", "Actions on many runs at once, and backfills.")
JOB = arg("JOB", "The id of the job.", typed_as="job")


@jobs.command("start")
def start(
    settings: Settings,
    action: Annotated[str, arg("ACTION", "cancel, rerun, pause, resume.")],
    run: Annotated[Texts, opt("--run", "RUN", "This run; repeated. Else the filters count.")] = None,
    state: Annotated[Texts, opt("--state", "STATE", "Only runs in this state; repeated.")] = None,
    workflow: OfWorkflow = None,
    business_key: OfBusinessKey = None,
    correlation_id: OfCorrelationId = None,
    label: Annotated[Texts, opt("--label", "NAME=TEXT", "Only runs with this label; repeated.")] = None,
    since: Annotated[Text, opt("--since", "TIME", "Created since then.")] = None,
    until: Annotated[Text, opt("--until", "TIME", "Created until then.")] = None,
    error: Annotated[Text, opt("--error", "TEXT", "With this in their error.")] = None,
    text: Annotated[Text, opt("--text", "TEXT", "With this anywhere.")] = None,
    roots: Roots = False,
    compensate: Annotated[bool, opt("--compensate", "With cancel: undo what the runs did.")] = False,
    reason: Annotated[str, opt("--reason", "TEXT", "Kept with each run; not with rerun.")] = "",
    dry_run: Annotated[bool, opt("--dry-run", "Only say which runs they are.")] = False,
    idempotency_key: Annotated[Text, opt("--idempotency-key", "KEY", "The same key makes the job once.")] = None,
    by: By = None,
) -> int:
    """Cancel, pause or resume many runs, or run them again. Workers do it in small batches."""
    where = run_filter(locals())
    if bool(run) is any(value is not None for value in where.values()):
        raise InvalidInput(
            "say which runs: with --run, or with filters such as --workflow and --state, and not with both. A job for "
            "all runs is not made."
        )
    options: Any = {"compensate": compensate, "reason": reason, "dry_run": dry_run, "by": by}
    options |= {"action": action, "where": where, "runs": run or None, "idempotency_key": idempotency_key}

    def words(found: JobView) -> Iterator[str]:
        if dry_run:
            yield f"{action} would be done to {found.runs} runs"
            yield from (f"  {one}" for one in found["first"])
            if found.runs != len(found["first"]):
                yield "  …"
        else:
            yield f"job {found.job} {found.state}: {action} {found.runs} runs"
            yield f"Look at it: {settings.command('jobs', 'show', str(found.job))}"

    return print_answer(settings, lambda engine: engine.jobs.start(**options), words, under="job")


@jobs.operation("list", "jobs.list", before=None)
def listed(found: JobList, asked: CommandValues) -> None:
    """List jobs and backfills, newest first."""
    table(
        found.jobs,
        f"there are no jobs. Make one: {asked.command('jobs', 'start', '--help')}",
        "job action state done waiting refused by",
        waiting=lambda one: one.get("waiting", "-"),
        by=lambda one: one.created_by,
    )


@jobs.command("show")
def show(
    settings: Settings,
    job: Annotated[str, JOB],
    limit: Annotated[int, opt("--limit", "How many runs at most.", bounds_of="jobs.runs limit")] = 100,
) -> int:
    """Show a job and what became of each run. Exit status 1 if a run was refused."""

    async def read(engine: AsyncEngine) -> Mapping[str, Any]:
        found = await engine.jobs.show(job)
        runs = [] if found.action == "backfill" else (await engine.jobs.runs(job, limit=limit)).runs
        return {"job": found, "runs": runs}

    def words(found: Mapping[str, Any]) -> Iterator[str]:
        one = found["job"]
        yield f"job {one.job} ({one.action}) is {one.state}: {one.done} done, {one.refused} refused"
        for run in found["runs"]:
            yield f"{run.run_id}  {run.result}  {run.new_run_id or run.detail or ''}".rstrip()

    return print_answer(settings, read, words, fails=lambda found: found["job"].refused)


@jobs.operation("stop", "jobs.stop", under="job", job_id=JOB)
def stop(found: JobView, _: CommandValues) -> str:
    """End a job early. What it has done stays."""
    return f"job {found.job} is stopped; {found.waiting} runs are left as they are"
