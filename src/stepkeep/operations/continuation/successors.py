"""Follows a flow that continued as new from one run to the next. It decides nothing.

The output of such a run names its successor, and the link of the two proves it. `engine.run` and `engine.wait` call it.
"""

from __future__ import annotations

import asyncio

from stepkeep.kernel.composition.child_runs import is_child
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.rows import Child, ChildState
from stepkeep.operations.children.children import ChildSweep
from stepkeep.operations.pipeline.transact import Transactor

PAUSES = (0.01, 1.0)
"""Seconds between two looks at a successor that has not started: the first ones, and the last ones."""


async def successor_of(
    transactor: Transactor, tenant: str, run_id: str, output: object, *, starts: bool = False
) -> str | None:
    """The run as which a flow continued, once it has started; None if this run, which has this output, did not.

    With `starts`, it is started here; otherwise a worker does.
    """
    if type(output) is not dict or output.keys() != {"continued_as"} or type(output["continued_as"]) is not str:
        return None
    found: str = output["continued_as"]
    pause, longest = PAUSES
    while True:
        link = None if is_child(found) else await transactor.store.children.read_link(tenant, found)
        if link is None or link.run_id != run_id:
            return None
        if link.state is ChildState.REFUSED:
            raise Conflict(f"run {run_id} continues as run {found}, which could not start: {link.error}")
        if link.state is not ChildState.REQUESTED:
            return found
        if starts and await _start(transactor, link):
            continue
        await asyncio.sleep(pause)
        pause = min(longest, 2 * pause)


async def _start(transactor: Transactor, link: Child) -> bool:
    """Start a successor. Returns whether something came of it: its business key may not be free."""
    sweep = ChildSweep(transactor)
    try:
        await sweep.begin(link)
    finally:
        sweep.close()
    found = await transactor.store.children.read_link(link.tenant, link.child_id)
    return found is None or found.state is not ChildState.REQUESTED
