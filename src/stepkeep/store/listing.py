"""Chooses the statement that lists the runs of a filter, so that none scans all runs.

Each statement has its own index: by correlation id, by business key, of unfinished runs, of stopped runs, by workflow;
or the primary key, for all. Both stores call it; it touches no database.
"""

from __future__ import annotations

from stepkeep.kernel.states import RUN_TERMINAL, RunState
from stepkeep.store.records import LAST_ID, RunFilter

LIVE = frozenset(RunState) - RUN_TERMINAL
TROUBLED = (RUN_TERMINAL - {RunState.SUCCEEDED}) | {RunState.STOPPING, RunState.COMPENSATING}
"""States that a run is in only after a failure, a timeout or a cancel."""

TAKES = {
    "find_runs": 4,
    "find_live_runs": 5,
    "find_troubled_runs": 5,
    "find_runs_of_workflow": 5,
    "find_runs_by_words": 5,
    "find_runs_by_business_key": 6,
    "find_runs_by_correlation": 8,
}
"""How many of the arguments each statement takes; the order is the same in all. The fifth is a workflow, or words."""


def finder(which: RunFilter) -> str:
    """The statement for a filter: the one whose index leaves the fewest rows to scan.

    >>> finder(RunFilter(tenant="acme", workflow="onboarding", states=(RunState.FAILED,)))
    'find_troubled_runs'
    """
    states = frozenset(which.states)
    if which.words is not None:
        return "find_runs_by_words"
    if which.correlation_id is not None:
        return "find_runs_by_correlation"
    if which.business_key is not None:
        return "find_runs_by_business_key"
    if states and states <= LIVE:
        return "find_live_runs"
    if states and states <= TROUBLED:
        return "find_troubled_runs"
    return "find_runs" if which.workflow is None else "find_runs_of_workflow"


def is_every_run(which: RunFilter) -> bool:
    """Whether nothing but the place in the list limits what is found: the primary key alone counts such runs."""
    return finder(which) == "find_runs" and not which.states


def arguments(which: RunFilter, own_run: str | None) -> tuple[object, ...]:
    """The arguments of every finder, states as a list; `own_run` is the correlation id where that is a run's id.

    No list of states means any state, also one that this program does not know: such a run is listed as unreadable.
    """
    return (
        which.tenant,
        which.before or LAST_ID,
        which.limit,
        [str(state) for state in which.states] or None,
        which.workflow if which.words is None else which.words,
        which.business_key,
        which.correlation_id,
        own_run,
    )
