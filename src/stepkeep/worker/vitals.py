"""How a worker is at a moment: its load, its lag, and whether the database answers it.

Values only; the worker's loop makes them. Metrics and the health checks of `stepkeep worker` read them.
"""

from __future__ import annotations

from typing import NamedTuple

from stepkeep.operations.remote.services import UsageWindow
from stepkeep.worker.chores.relay import Tally


class Vitals(NamedTuple):
    """One worker. `answered_seconds_ago`: since the database last answered a search for work; a worker that is full
    does not search. `claimed_seconds_ago`: since it last claimed a step."""

    app: str
    id: str | None
    places: int
    held: int
    free: int
    usage: tuple[UsageWindow, ...]
    loop_lag_seconds: float
    answered_seconds_ago: float
    claimed_seconds_ago: float
    is_store_up: bool
    is_draining: bool
    relayed: Tally
