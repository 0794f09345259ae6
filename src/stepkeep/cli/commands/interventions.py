"""`stepkeep request-changes`, `escalate`, `reassign`, `annotate`, `freeze`: what people do beside deciding."""

from __future__ import annotations

from typing import Annotated

from stepkeep.cli.arguments import By, RunId, arg, opt
from stepkeep.cli.asking import tell
from stepkeep.cli.commands.decide import For, Gate, and_run, decided, stands
from stepkeep.cli.printer import say
from stepkeep.cli.settings import Settings

Said = Annotated[str, opt("--comment", "TEXT", "What is to change.", show_default=False)]
Why = Annotated[str, opt("--reason", "TEXT", "Kept in the journal.", show_default=False)]


def request_changes(
    settings: Settings, run: RunId, comment: Said, step: Gate = None, for_: For = None, by: By = None
) -> int:
    """Request changes at an open gate. It stays open, and the decisions so far are void."""
    return decided(
        settings,
        run,
        lambda engine, found: engine.interventions.request_changes(found, step, comment=comment, for_=for_, by=by),
    )


def escalate(settings: Settings, run: RunId, reason: Why, step: Gate = None, for_: For = None, by: By = None) -> int:
    """Open the next level of a gate before its deadline does."""
    return decided(
        settings,
        run,
        lambda engine, found: engine.interventions.escalate(found, step, reason=reason, for_=for_, by=by),
    )


def reassign(
    settings: Settings,
    run: RunId,
    step: Annotated[str, arg("STEP", "The gate.")],
    reason: Why,
    to: Annotated[list[str] | None, opt("--to", "NAME", "Who may decide it; may be repeated.")] = None,
    fail: Annotated[bool, opt("--fail", "Fail the gate instead.")] = False,
    by: By = None,
) -> int:
    """Name other approvers for a gate that nobody may decide, or fail it.

    Only a person who did not ask for the run may.
    """
    return decided(
        settings,
        run,
        lambda engine, found: engine.interventions.reassign(found, step, to=to or (), fail=fail, reason=reason, by=by),
    )


def annotate(
    settings: Settings,
    run: RunId,
    note: Annotated[str, arg("NOTE", "The text.")],
    step: Annotated[str | None, opt("--step", "STEP", "The step that it is about.", show_default=False)] = None,
    by: By = None,
) -> int:
    """Keep a note in the journal of a run. No state changes."""
    about = f" about {step}" if step else ""
    return tell(
        settings,
        and_run(run, lambda engine, found: engine.interventions.annotate(found, note, step=step, by=by)),
        lambda told: (
            f"a note{about} by {told['decision'].by} is in the journal; {stands(told['run'])}",
            f"Read it: {settings.command('log', 'export', told['run']['id'])}",
        ),
    )


def freeze(settings: Settings, run: RunId, reason: Why, by: By = None) -> int:
    """Freeze a run: a pause under a name of its own, with a reason."""
    status = decided(settings, run, lambda engine, found: engine.interventions.freeze(found, reason=reason, by=by))
    if not settings.json:
        say(f"Go on: {settings.command('resume', run)}")
    return status
