"""What a campaign must have met: every row of the tables, every refusal, every fault, and some meetings of processes.

A simulation in which nothing happens passes every check; what was never reached says how much of it did.
"""

from __future__ import annotations

from collections.abc import Collection

from stepkeep.dialects import registry
from stepkeep.kernel.machine.tables import RUN, STEP, WORKER, WorkerTrigger
from stepkeep_lab.simulation.faults import Fault

REFUSALS = ("Conflict", "NotFound", "KeyReused", "InvalidInput", "Fenced")

MEETINGS = (
    "a wait for a lock",
    "a lock timeout",
    "a claim chained to a report",
    "a caller met StoreUnavailable",
    "start: the same again",
    "gate: the same again",
    "click: the same again",
    "message: the same again",
    "completion: the same again",
    "cancel: the same again",
    "pause: the same again",
    "resume: the same again",
    *(f"a run told in the words of {name}" for name in registry.names()),
)

UNREACHABLE = {
    ("worker", "initializing", WorkerTrigger.START_FAILED): "a worker that cannot start does not register",
}
"""Rows that nothing in the engine takes so far."""


def table_rows() -> set[tuple[str, str | None, str]]:
    """Every (machine, state, trigger) that a campaign can reach."""
    rows = {
        (machine.name, row.source and str(row.source), str(row.trigger))
        for machine in (RUN, STEP, WORKER)
        for row in machine.rows
    }
    return rows - set(UNREACHABLE)


def unreached(
    rows: Collection[tuple[str, str | None, str]],
    faults: Collection[str],
    refusals: Collection[str],
    met: Collection[str],
) -> list[str]:
    """What never happened, in words."""
    missing = [f"{kind}: {source or 'new'} by {trigger}" for kind, source, trigger in table_rows() - set(rows)]
    missing += [f"fault: {fault}" for fault in Fault if fault not in faults]
    missing += [f"refusal: {kind}" for kind in REFUSALS if kind not in refusals]
    missing += [f"meeting: {what}" for what in MEETINGS if what not in met]
    return sorted(missing)
