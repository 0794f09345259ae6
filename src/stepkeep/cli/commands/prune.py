"""`stepkeep prune`: let finished runs go, archived first. Meant to be run by a timer, as often as one likes."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.answering import ask, print_value
from stepkeep.cli.arguments import LARGEST, Text, opt
from stepkeep.cli.command import program
from stepkeep.cli.printer import warn
from stepkeep.cli.settings import Needs, Settings
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.operations.logs.retention import Pruned, Told

TOLD_EVERY = 1.0
"""Seconds between two lines of progress."""


@program.command("prune", Needs.DATABASE)
def prune(
    settings: Settings,
    older_than: Annotated[Text, opt("--older-than", "DURATION", "Only runs that ended so long ago: 30d.")] = None,
    keep: Annotated[int | None, opt("--keep", "N", "Spare the newest N finished runs.", min=0, max=LARGEST)] = None,
    workflow: Annotated[Text, opt("--workflow", "NAME", "Only runs of this one; --keep counts its runs.")] = None,
    archive: Annotated[Text, opt("--archive", "DIR", "Where archives go; nothing else is deleted.")] = None,
    no_archive: Annotated[bool, opt("--no-archive", "Delete without a trace.")] = False,
    forget_keys: Annotated[
        Text, opt("--forget-keys", "DURATION", "Also idempotency keys of runs that are gone, so old: 90d.")
    ] = None,
    forget_audit: Annotated[
        Text, opt("--forget-audit", "DURATION", "Also entries of the audit log, so old: 400d.")
    ] = None,
    forget_firings: Annotated[
        Text, opt("--forget-firings", "DURATION", "Also firings of triggers whose runs are gone, so old: 90d.")
    ] = None,
    forget_jobs: Annotated[
        Text, opt("--forget-jobs", "DURATION", "Also jobs that ended so long ago, with their keys: 90d.")
    ] = None,
    dry_run: Annotated[bool, opt("--dry-run", "Only count what would go.")] = False,
    batch: Annotated[int, opt("--batch", "How many runs are deleted in one transaction.", min=1, max=10_000)] = 500,
) -> int:
    """Archive finished runs, then delete them: those that every limit given lets go.

    It may be stopped at any time and run again. A run whose journal is flawed is neither archived nor deleted, and
    makes the exit status 1.
    """
    if not dry_run and (archive is not None) == no_archive:
        raise InvalidInput("Say where archives go: --archive DIR. Or give --no-archive to delete without a trace.")
    names = "older_than keep workflow archive forget_keys forget_audit forget_firings forget_jobs dry_run batch"
    typed = locals()
    options: dict[str, Any] = {name: typed[name] for name in names.split()}
    pruned = ask(settings, lambda engine: engine.prune(told=_progress(), **options))
    counts = ("found", "kept", "archived", "deleted", "keys", "audit", "firings", "jobs", "archives")
    view = {"dry_run": dry_run, **{name: getattr(pruned, name) for name in counts}}
    view["flawed"] = [{"run": run_id, "why": why} for run_id, why in pruned.flawed]
    flawed = [f"run {run_id} stays: {why}" for run_id, why in pruned.flawed]
    said = (*flawed, *pruned.archives, _summary(pruned, dry_run=dry_run))
    return print_value(settings, {"prune": view}, said, failed=flawed)


def _summary(pruned: Pruned, *, dry_run: bool) -> str:
    kept = f", {pruned.kept:,} kept longer by their workflows" if pruned.kept else ""
    if dry_run:
        return f"{pruned.found:,} finished runs would go{kept}"
    keys = f", {pruned.keys:,} idempotency keys forgotten" if pruned.keys else ""
    keys += f", {pruned.audit:,} audit entries forgotten" if pruned.audit else ""
    keys += f", {pruned.firings:,} firings forgotten" if pruned.firings else ""
    keys += f", {pruned.jobs:,} jobs forgotten" if pruned.jobs else ""
    noun = "run" if pruned.archived == 1 else "runs"
    return f"{pruned.archived:,} {noun} archived, {pruned.deleted:,} deleted{keys}{kept}"


def _progress() -> Told:
    """A line of progress from time to time, on a terminal."""
    last = time.monotonic()

    def show_progress(pruned: Pruned) -> None:
        nonlocal last
        if sys.stderr.isatty() and time.monotonic() - last >= TOLD_EVERY:
            last = time.monotonic()
            warn(f"{pruned.found:,} found, {pruned.archived:,} archived, {pruned.deleted:,} deleted so far")

    return show_progress
