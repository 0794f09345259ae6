"""`stepkeep quarantine`: set a run aside, release it, and list those that are set aside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.arguments import By, arg, opt
from stepkeep.cli.asking import of_run, tell
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.operations.quarantine import QuarantineView


def quarantine(
    settings: Settings,
    run: Annotated[str | None, arg("[RUN]", "The run to set aside; a part of its id is enough.")] = None,
    reason: Annotated[str | None, opt("--reason", "TEXT", "Why; kept with the quarantine.")] = None,
    by: By = None,
    release: Annotated[str | None, opt("--release", "RUN", "End the quarantine of this run instead.")] = None,
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
        return tell(
            settings,
            lambda engine: engine.quarantined(history=history),
            lambda found: [told(one) for one in found.quarantined] or nothing,
        )
    if reason is None:
        raise InvalidInput("Say why: --reason TEXT.")
    why = reason
    if release is not None:
        return tell(
            settings,
            of_run(release, lambda engine, found: engine.release(found, reason=why, by=by)),
            lambda one: f"run {one.run} is released by {one.released_by}: {one.release_reason}",
            under="quarantine",
        )
    return tell(
        settings,
        of_run(run or "", lambda engine, found: engine.quarantine(found, reason=why, by=by)),
        lambda one: f"run {one.run} is quarantined by {one.by}: {one.reason}",
        under="quarantine",
    )


def told(one: QuarantineView | Mapping[str, Any]) -> str:
    """One line about a quarantine."""
    line = f"run {one['run']} quarantined by {one['by']} at {one['at']}: {one['reason']}"
    if one["released_at"] is None:
        return line
    return f"{line}; released by {one['released_by']} at {one['released_at']}: {one['release_reason']}"
