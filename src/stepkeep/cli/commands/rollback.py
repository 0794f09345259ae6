"""`stepkeep rollback-preview`: what a cancel with compensation would undo, and what it cannot. Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepkeep.cli.arguments import RunId
from stepkeep.cli.asking import of_run, tell
from stepkeep.cli.settings import Settings

if TYPE_CHECKING:
    from stepkeep.operations.rollback import Remaining, RollbackPreview, RunningStep, Undo


def rollback_preview(settings: Settings, run: RunId) -> int:
    """Say what `cancel --compensate` would undo now, in which order, and what it cannot. Exit status 1 if not all."""
    return tell(
        settings,
        of_run(run, lambda engine, found: engine.rollback_preview(found)),
        lambda found: _lines(found, settings),
        under="rollback",
        fails=lambda found: not found.possible or found.cannot_undo,
    )


def _lines(found: RollbackPreview, settings: Settings) -> Iterator[str]:
    if found.refusal is not None:
        yield found.refusal
        return
    if not found.undo:
        yield "nothing would be undone"
    for undo in found.undo:
        yield f"{undo.position}. {'  ' * undo.level}{undo.step} is undone by {undo.undo}{_below(undo)}"
    for left in found.cannot_undo:
        yield f"{left.step}{_below(left)} stays: {left.says}"
    for one in found.running:
        yield f"{one.step}{_below(one)} runs now: {one.says}"
    yield f"the run would be {found.ends.replace('_', ' ')}"
    yield f"Do it: {settings.command('cancel', found.run_id, '--compensate')}"


def _below(one: Undo | Remaining | RunningStep) -> str:
    """Which run a step belongs to, if it is not the one that was asked about."""
    return f" in run {one.run_id}" if one.level else ""
