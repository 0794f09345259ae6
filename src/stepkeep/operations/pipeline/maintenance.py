"""Maintenance of the store: partitions are created in advance and dropped after retention has emptied them.

It waits only briefly for locks and does not fail for a missing right: both are logged. Workers call it once an hour,
retention after it has deleted runs, `stepkeep db maintain` with several tries.
"""

from __future__ import annotations

import asyncio
import logging

from msgspec.structs import replace

from stepkeep.store.protocol import Store
from stepkeep.store.records import Maintenance

TRIES = 20
PAUSE_SECONDS = 0.25

log = logging.getLogger(__name__)


async def maintain(store: Store) -> Maintenance:
    """Maintain once, and log what could not be done."""
    done = await store.maintain()
    for what in done.put_off:
        log.info("put off %s", what)
    if done.weeks_denied:
        log.warning(
            "%d weeks of the journal are missing, and this role may not make them; their entries go into the default "
            "partition. Run `stepkeep db maintain` as the owner of the tables once a week.",
            done.weeks_denied,
        )
    return done


async def maintain_with_patience(store: Store) -> Maintenance:
    """Maintain, and try again for some seconds if tables are in use."""
    done = await store.maintain()
    for _ in range(TRIES - 1):
        if not done.put_off:
            break
        await asyncio.sleep(PAUSE_SECONDS)
        again = await store.maintain()
        made, dropped = done.weeks_made + again.weeks_made, done.weeks_dropped + again.weeks_dropped
        done = replace(again, weeks_made=made, weeks_dropped=dropped)
    return done
