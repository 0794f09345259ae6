"""What must be true of paused workflows: runs that start meanwhile start paused, and nothing of them is claimed.

It reads the journals and what people were told. `people` pauses workflows, `verdict` calls the check when a simulation
has ended.
"""

from __future__ import annotations

from collections.abc import Iterator

from stepkeep.kernel.machine.journal import RUN_ENTITY, Entry, open_entry
from stepkeep.kernel.machine.states import RunState
from stepkeep.store.change import RunKey
from stepkeep_lab.simulation.ledger import Ledger
from stepkeep_lab.simulation.stage import EPOCH
from stepkeep_lab.simulation.tables import Tables

FRESH_SECONDS = 0.75
"""For how long a process may go by what it read before a workflow was paused."""

SWEEP = "sweep"
"""The actor of a start by time. The worker may have stood still since it read what is paused."""

PAUSABLE = frozenset(map(str, (RunState.QUEUED, RunState.RUNNING, RunState.BLOCKED)))
PAUSED = str(RunState.PAUSED)


def wrong_pauses(tables: Tables, ledger: Ledger) -> Iterator[str]:
    """Everything that is wrong with paused workflows and runs."""
    for (tenant, run_id), journal in tables.journal.items():
        if (tenant, run_id) not in tables.runs:
            continue
        entries = [open_entry(journal[seq].body) for seq in sorted(journal)]
        yield from _wrong_start(tables, ledger, (tenant, run_id), entries)
        yield from _claimed_while_paused(run_id, entries)


def _wrong_start(tables: Tables, ledger: Ledger, key: RunKey, entries: list[Entry]) -> Iterator[str]:
    """A pause at the start is an entry of the same transaction as the start, and nothing is claimed before it."""
    place = next((place for place, entry in enumerate(entries) if _has(entry, "run_started")), None)
    if place is None:
        return
    start, then = entries[place], entries[place + 1 : place + 2]
    is_paused = bool(then) and _has(then[0], "pause_requested") and then[0].at == start.at
    is_paused = is_paused or _after(start) == PAUSED
    if is_paused:
        ledger.met["a run that started paused"] += 1
    workflow, state = tables.details[key].workflow, _after(start)
    is_wrong = not is_paused or any(hop.trigger == "claimed" for hop in start.hops)
    asked_at = ledger.asked_at.get(key[1])
    if place:
        by_people = not any(cause.actor == SWEEP for cause in start.causes)
        asked_at = ledger.begin_asked_at.get(key[1]) if by_people else None
    if is_wrong and state in PAUSABLE and _is_in_pause(ledger, workflow, asked_at, start):
        yield f"pauses: run {key[1]} started {state} while its workflow {workflow} was paused"


def _has(entry: Entry, event: str) -> bool:
    return any(cause.event == event for cause in entry.causes)


def _is_in_pause(ledger: Ledger, workflow: str, asked_at: float | None, start: Entry) -> bool:
    """Whether a start was asked for after its workflow was paused, and made before people asked to resume it.

    The first request may have had no answer: then the one on the ledger came after the start was made.
    """
    made_at = (start.at - EPOCH) / 1_000_000
    return asked_at is not None and any(
        name == workflow and min(asked_at, made_at) > began + FRESH_SECONDS and start.at < ended_at
        for name, began, ended_at in ledger.workflow_pauses
    )


def _claimed_while_paused(run_id: str, entries: list[Entry]) -> Iterator[str]:
    state = ""
    for entry in entries:
        for hop in entry.hops:
            if hop.no == RUN_ENTITY:
                state = str(hop.target)
            elif hop.trigger == "claimed" and state == PAUSED:
                yield f"pauses: step {hop.no} of run {run_id} was claimed in entry {entry.seq}, and the run is paused"


def _after(entry: Entry) -> str:
    """The state of the run after an entry."""
    return next((str(hop.target) for hop in reversed(entry.hops) if hop.no == RUN_ENTITY), "")
