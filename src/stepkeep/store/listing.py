"""Chooses the statement that lists the runs of a filter, so that none scans all runs.

Each statement has its own index: by correlation id, by business key, of unfinished runs, of stopped runs, by workflow;
or the primary key, for all. Both stores call it; it touches no database.
"""

from __future__ import annotations

from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.store.records import FIRST_ID, LAST_ID, RunFilter, Words

LIVE = frozenset(RunState) - RUN_TERMINAL
TROUBLED = (RUN_TERMINAL - {RunState.SUCCEEDED}) | {RunState.STOPPING, RunState.COMPENSATING}
"""States that a run is in only after a failure, a timeout or a cancel."""

TAKES = {
    "find_runs": 5,
    "find_live_runs": 6,
    "find_troubled_runs": 6,
    "find_runs_of_workflow": 6,
    "find_erred_runs": 6,
    "find_runs_by_business_key": 7,
    "find_runs_by_correlation": 9,
}
"""How many of the arguments each statement takes; the order is the same in all."""


def finder(which: RunFilter) -> str:
    """The statement for a filter: the one whose index leaves the fewest rows to scan.

    >>> finder(RunFilter(tenant="acme", workflow="onboarding", states=(RunState.FAILED,)))
    'find_troubled_runs'
    """
    states = frozenset(which.states)
    if which.correlation_id is not None:
        return "find_runs_by_correlation"
    if which.business_key is not None:
        return "find_runs_by_business_key"
    if states and states <= LIVE:
        return "find_live_runs"
    if states and states <= TROUBLED:
        return "find_troubled_runs"
    if which.erred:
        return "find_erred_runs"
    return "find_runs" if which.workflow is None else "find_runs_of_workflow"


def is_read_in_order(which: RunFilter, words: Words) -> bool:
    """Whether a search reads a range of all runs in the order of their key. Otherwise an index finds runs first, and
    each is looked up."""
    if words == Words() or words.error is not None or words.roots:
        return False
    return finder(which) == "find_runs" and not which.states


def arguments(which: RunFilter, own_run: str | None) -> tuple[object, ...]:
    """The arguments of every finder, states as a list; `own_run` is the correlation id where that is a run's id.

    No list of states means any state, also one that this program does not know: such a run is listed as unreadable.
    """
    return (
        which.tenant,
        which.before or LAST_ID,
        which.limit,
        which.oldest or FIRST_ID,
        [str(state) for state in which.states] or None,
        which.workflow,
        which.business_key,
        which.correlation_id,
        own_run,
    )
