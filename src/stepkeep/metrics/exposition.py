"""One scrape: everything that this process can tell, as text for Prometheus.

It begins to count rows when it is made, and reads the database when it is asked. `GET /metrics` and the port of metrics
call it; the HTTP service adds its own families.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from stepkeep.metrics.families import Family, Values, counter, gauge, of_process, of_seed
from stepkeep.metrics.gauges import LoopLag, StoreGauges
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.worker.utilisation import Vitals

if TYPE_CHECKING:
    from stepkeep.worker.utilisation import Vitals


More = Callable[[], Iterable[Family]]


class Exposition:
    """What one process shows. `workers` tells how its workers are, `more` has further families."""

    def __init__(
        self,
        transactor: Transactor,
        *,
        tenant: str | None = None,
        workers: Callable[[], Sequence[Vitals]] = lambda: (),
        more: Sequence[More] = (),
    ) -> None:
        self._measures, self._workers, self._more = transactor.measures, workers, more
        self._gauges, self._lag = StoreGauges(transactor, tenant), LoopLag()
        self._process = ProcessCollector(registry=None)
        self._measures.watch()

    def begin(self) -> None:
        """Measure the lag of the running loop from now on."""
        self._lag.begin()

    async def close(self) -> None:
        await self._lag.close()

    async def text(self, accept: str = "") -> tuple[bytes, str]:
        """The text, and its media type: OpenMetrics if the client asks for it."""
        of_store = await self._gauges.families()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Once([*self._families(), *of_store]))
        encode, media_type = choose_encoder(accept)
        return encode(registry), media_type

    def _families(self) -> Iterable[Metric]:
        yield from of_seed(self._measures)
        yield from of_process(self._measures)
        yield gauge("stepkeep_build_info", {(version("stepkeep"),): 1.0})
        yield gauge("stepkeep_loop_lag_seconds", {(): self._lag.seconds})
        if workers := self._workers():
            yield from of_workers(workers)
        for more in self._more:
            yield from more()
        yield from self._process.collect()


class _Once(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._found = families

    def collect(self) -> Iterable[Metric]:
        return self._found


def of_workers(workers: Sequence[Vitals]) -> list[Family]:
    """How the workers of this process are. They are told apart by the names that they were given."""
    slots: dict[tuple[str, ...], float] = {}
    usage: dict[tuple[str, ...], float] = {}
    lag: dict[tuple[str, ...], float] = {}
    age: dict[tuple[str, ...], float] = {}
    is_up: dict[tuple[str, ...], float] = {}
    relayed: dict[tuple[str, ...], float] = {}
    seen: Counter[str] = Counter()
    for one in workers:
        seen[one.app] += 1
        name = one.app if seen[one.app] == 1 else f"{one.app}-{seen[one.app]}"
        slots |= {(name, "held"): one.places - one.free, (name, "free"): one.free}
        usage |= {(name, f"{window.seconds}s"): window.slots / one.places for window in one.usage}
        lag[name,], age[name,] = one.loop_lag_seconds, one.answered_seconds_ago
        is_up[name,] = float(one.is_store_up)
        sent = one.relayed
        relayed |= {
            (name, "sent"): sent.sent,
            (name, "failed"): sent.failed,
            (name, "dead"): sent.dead,
            (name, "late"): sent.refused,
        }
    told: list[tuple[str, Values]] = [
        ("stepkeep_worker_slots", slots),
        ("stepkeep_worker_utilisation", usage),
        ("stepkeep_worker_loop_lag_seconds", lag),
        ("stepkeep_worker_claim_age_seconds", age),
        ("stepkeep_worker_store_up", is_up),
    ]
    return [*(gauge(name, values) for name, values in told), counter("stepkeep_relay_events_total", relayed)]
