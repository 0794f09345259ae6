"""`stepkeep approve`, `reject`, `decide` and `cancel`: what people decide about a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.arguments import By, RunId, arg, opt
from stepkeep.cli.asking import of_run, tell
from stepkeep.cli.render.look import words
from stepkeep.cli.session import json_value
from stepkeep.cli.settings import Settings

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.answers import Answer

Gate = Annotated[str | None, arg("STEP", "The gate; may be left out when exactly one is open.")]
Comment = Annotated[str, opt("--comment", "TEXT", "Kept with the decision.")]
For = Annotated[str | None, opt("--for", "PERSON", "The person who delegated the decision to you.", show_default=False)]
Evidence = Annotated[list[str] | None, opt("--evidence", "REFERENCE", "Where the proof is; may be repeated.")]
Reason = Annotated[str, opt("--reason", "TEXT", "Kept with the decision.")]


def approve(
    settings: Settings,
    run: RunId,
    step: Gate = None,
    comment: Comment = "",
    evidence: Evidence = None,
    for_: For = None,
    by: By = None,
) -> int:
    """Approve an open gate."""
    said: dict[str, Any] = {"comment": comment, "evidence": evidence or (), "for_": for_, "by": by}
    return decided(settings, run, lambda engine, found: engine.approve(found, step, **said))


def reject(
    settings: Settings,
    run: RunId,
    step: Gate = None,
    comment: Comment = "",
    evidence: Evidence = None,
    for_: For = None,
    by: By = None,
) -> int:
    """Reject an open gate."""
    said: dict[str, Any] = {"comment": comment, "evidence": evidence or (), "for_": for_, "by": by}
    return decided(settings, run, lambda engine, found: engine.reject(found, step, **said))


def decide(
    settings: Settings,
    run: RunId,
    step: Annotated[str, arg("STEP", "The step that is stuck.")],
    choice: Annotated[str, arg("DECISION", "retry, skip, fail or complete.")],
    output: Annotated[str | None, opt("--output", "JSON|@FILE", "What a completed step comes to.")] = None,
    reason: Annotated[str, opt("--reason", "TEXT", "Kept with the decision; required unless the step holds.")] = "",
    by: By = None,
) -> int:
    """Retry, skip, fail or complete a stuck step.

    It holds because no attempt is left, or it waits for its next attempt, for a worker or for a message.
    """
    said: Any = {"choice": choice, "reason": reason, "output": json_value(output, "--output"), "by": by}
    return decided(settings, run, lambda engine, found: engine.decide(found, step, **said))


def cancel(
    settings: Settings,
    run: RunId,
    compensate: Annotated[bool, opt("--compensate", "Undo what the run did.")] = False,
    reason: Reason = "",
    by: By = None,
) -> int:
    """Cancel a run."""
    return decided(
        settings, run, lambda engine, found: engine.cancel(found, compensate=compensate, reason=reason, by=by)
    )


def decided(settings: Settings, run: str, decide: Callable[[AsyncEngine, str], Awaitable[Answer]]) -> int:
    """Make a decision, then print what was recorded and the state of the run."""
    return tell(settings, and_run(run, decide), _recorded)


def and_run(
    run: str, decide: Callable[[AsyncEngine, str], Awaitable[Answer]]
) -> Callable[[AsyncEngine], Awaitable[dict[str, Any]]]:
    """Put a request to the engine; its answer comes together with the run as it then stands."""

    async def work(engine: AsyncEngine, run_id: str) -> dict[str, Any]:
        record = await decide(engine, run_id)
        return {"decision": record, **await engine.show(run_id)}

    return of_run(run, work)


def _recorded(said: dict[str, Any]) -> Iterator[str]:
    record, now = said["decision"], said["run"]
    what = record.get("decision") or record.get("outcome")
    step = f"{record.step} " if record.get("step") else ""
    again = " (as before)" if record.repeated else ""
    lent = f" for {record.for_}" if record.get("for") else ""
    if what:
        yield f"{step}{str(what).lower()} by {record.by}{lent}{again}{counted(record)}; {stands(now)}"
    else:
        yield f"{stands(now)}{again}"
    if record.repeated and record.get("outcome"):
        yield "the completion stands as it was recorded; what was given now was not kept"


def counted(record: Answer) -> str:
    """How an open gate stands after a decision: `: counted, 1 of 2; it needs 1 more of role finance`."""
    if "counted" not in record:
        return ""
    so_far, needs = record["counted"], record["needs"]
    rejected = f" and {so_far.rejected} rejected" if so_far.rejected else ""
    quorum = so_far.approved + needs.approved
    return f": counted, {so_far.approved} of {quorum}{rejected}; it needs {needs.approved} more of {needs.of}"


def stands(run: Mapping[str, Any]) -> str:
    """How a run stands now: `run ID is blocked`, `run ID has succeeded`."""
    verb = "has" if run["state"] in {"succeeded", "failed"} else "is"
    return f"run {run['id']} {verb} {words(run['state'])}"
