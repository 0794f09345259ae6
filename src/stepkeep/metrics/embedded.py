"""The metrics of an engine inside a host program: what it committed, its workers, and the gauges of its tenant.

Separate, because an engine must not import the Prometheus client library until metrics are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.pipeline.transact import Transactor

if TYPE_CHECKING:
    from stepkeep.metrics.exposition import Exposition
    from stepkeep.worker.utilisation import Vitals


def exposition_of(transactor: Transactor, tenant: str, workers: Callable[[], Sequence[Vitals]]) -> Exposition:
    """What the process of an engine shows from now on."""
    try:
        from stepkeep.metrics.exposition import Exposition
    except ImportError:
        raise InvalidInput("metrics need one more library. Install it: pip install 'stepkeep[server]'.") from None
    made = Exposition(transactor, tenant=tenant, workers=workers)
    made.begin()
    return made
