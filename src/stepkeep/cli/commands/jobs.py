"""`stepkeep jobs`: cancel, pause or resume many runs or run them again, as a job that workers carry out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.answering import print_answer, table
from stepkeep.cli.arguments import By, OfBusinessKey, OfCorrelationId, OfWorkflow, Text, Texts, arg, opt, run_filter
from stepkeep.cli.command import Commands, CommandValues
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.continuation.jobs import JobList, JobView

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

    async def read(engine: AsyncEngine) -> dict[str, Any]:
        found = await engine.jobs.show(job)
        runs = [] if found.action == "backfill" else (await engine.jobs.runs(job, limit=limit)).runs
        return {"job": found, "runs": runs}

    def words(found: dict[str, Any]) -> Iterator[str]:
        one = found["job"]
        yield f"job {one.job} ({one.action}) is {one.state}: {one.done} done, {one.refused} refused"
        for run in found["runs"]:
            yield f"{run.run_id}  {run.result}  {run.new_run_id or run.detail or ''}".rstrip()

    return print_answer(settings, read, words, fails=lambda found: found["job"].refused)


@jobs.operation("stop", "jobs.stop", under="job", job_id=JOB)
def stop(found: JobView, _: CommandValues) -> str:
    """End a job early. What it has done stays."""
    return f"job {found.job} is stopped; {found.waiting} runs are left as they are"
