"""Archives ended runs beside a worker: while it serves, and once more when it has drained.

It decides nothing: the sweeper of `operations/logs/run_archive.py` knows what to archive. The command `worker` and
workers in host programs use it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from stepkeep.kernel.errors import StepkeepError
from stepkeep.operations.logs.run_archive import ArchiveSweeper, Swept
from stepkeep.operations.pipeline.transact import Transactor

log = logging.getLogger("stepkeep.archive")


def verified(manifest: Path) -> Iterator[str]:
    """What the judge finds wrong with an archive."""
    # Imported on first use: most workers archive nothing.
    from stepkeep.conformance.archive import verify_archive
    from stepkeep.conformance.machines import REFERENCE

    yield from (finding.message for finding in verify_archive(manifest, REFERENCE).findings)


@asynccontextmanager
async def archiving(
    transactor: Transactor,
    *,
    tenant: str,
    base: Path | None = None,
    deletes: bool = False,
    report: Callable[[str], None] = log.info,
) -> AsyncIterator[None]:
    """Archive ended runs of workflows that declare it meanwhile, below `base`, and once more at the end. With
    `deletes`, runs go whose declared time has passed."""
    sweeper = ArchiveSweeper(transactor, tenant=tenant, verify=verified, base=base)

    def log_swept(swept: Swept) -> None:
        for one in swept.bundles:
            report(f"run {one.run_id} ({one.workflow}, {one.state}) is archived in {one.folder}")
        for run_id, why in swept.problems:
            report(f"run {run_id} is not archived: {why}")
        if swept.deleted:
            report(f"{len(swept.deleted):,} runs are deleted: the time that their workflows keep them has passed")

    async def keep() -> None:
        async for swept in sweeper.follow(deletes=deletes):
            log_swept(swept)

    keeping = asyncio.create_task(keep(), name="archives")
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        with suppress(StepkeepError):  # the database is away; another worker makes up for it
            log_swept(await sweeper.sweep())
