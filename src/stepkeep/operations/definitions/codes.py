"""Which code ran an attempt: what its worker published about its handlers. Reads only.

The report of a worker stays when the worker has gone. An attempt of a worker that never reported has no code. `views`
calls it.
"""

from __future__ import annotations

from collections.abc import Collection

from stepkeep.kernel.definition import Agent, Executor, Handler
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.remote.services import read_service
from stepkeep.operations.runs.run_answers import CodeOf


async def read_codes(transactor: Transactor, tenant: str, workers: Collection[int]) -> dict[tuple[int, str], CodeOf]:
    """The code of each handler of these workers, by the number of the worker and the name of the handler."""
    if not workers:
        return {}
    found: dict[tuple[int, str], CodeOf] = {}
    for report in await transactor.store.read_worker_reports(tenant, workers):
        service = read_service(report.body)
        for name, code in ({} if service is None else service.code).items():
            found[report.worker, name] = CodeOf(
                handler=name,
                digest=code.digest or None,
                module=code.module or None,
                version=code.version or None,
            )
    return found


def handler_name(executor: Executor | None) -> str:
    """The name under which workers publish the code of a step; empty where it has none."""
    return executor.name if isinstance(executor, Handler | Agent) else ""
