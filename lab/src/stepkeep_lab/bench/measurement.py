"""Measurements as values: what was measured, where, round by round; medians and spreads are computed on demand."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

Figures = dict[str, float]
"""What one round gave, by the names in FIGURES."""


class Kind(NamedTuple):
    """How a figure is called, what it is counted in, and whether more of it is better."""

    title: str
    unit: str
    more_is_better: bool = False


PAGES = (
    "runs",
    "runs_by_state",
    "runs_by_workflow",
    "runs_by_text",
    "run",
    "approvals",
    "overview",
    "workflows",
    "workflow",
    "workers",
    "triggers",
    "outbox",
    "administration",
)
"""The web pages whose first answers are measured; searches on the page of runs are pages of their own here."""

FIGURES: dict[str, Kind] = {
    "steps_per_second": Kind("steps", "/s", more_is_better=True),
    "runs_per_second": Kind("runs", "/s", more_is_better=True),
    "starts_per_second": Kind("starts", "/s", more_is_better=True),
    "requests_per_second": Kind("requests", "/s", more_is_better=True),
    "p50_ms": Kind("p50", "ms"),
    "p99_ms": Kind("p99", "ms"),
    "bare_p50_ms": Kind("p50 of a bare insert", "ms"),
    "bare_p99_ms": Kind("p99 of a bare insert", "ms"),
    "claim_ms": Kind("claim of 100", "ms"),
    "claim_cpu_ms": Kind("CPU of server and client for it", "ms"),
    "service_us": Kind("CPU service", "µs"),
    "worker_us": Kind("CPU worker", "µs"),
    "client_us": Kind("CPU client", "µs"),
    "server_us": Kind("CPU server", "µs"),
    "all_us": Kind("CPU together", "µs"),
    "plan_steps_per_second": Kind("steps of the plan", "/s", more_is_better=True),
    "delivered_steps_per_second": Kind("steps with results delivered", "/s", more_is_better=True),
    "plan_all_us": Kind("CPU together of the plan", "µs"),
    "wal_bytes": Kind("WAL", "bytes"),
    "round_trips": Kind("round trips", ""),
    "statements_per_second": Kind("statements", "/s"),
    "worker_cpu_percent": Kind("CPU worker", "%"),
    "server_cpu_percent": Kind("CPU server", "%"),
    "lines_per_second": Kind("lines judged", "/s", more_is_better=True),
    "line_us": Kind("CPU for a line", "µs"),
    "certificates_per_second": Kind("certificates", "/s", more_is_better=True),
    "seconds": Kind("time", "s"),
    "added_mb": Kind("added memory", "MB"),
    "worker_mb": Kind("memory of a worker", "MB"),
    **{f"page_{name}_ms": Kind(f"page {name.replace('_', ' ')}", "ms") for name in PAGES},
}


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One work on one store by one subject (`stepkeep`, a peer, `bound`); no rounds when it could not be measured."""

    subject: str
    work: str
    store: str
    rounds: tuple[Figures, ...] = ()
    why: str = ""

    def samples(self, figure: str) -> list[float]:
        return [each[figure] for each in self.rounds if figure in each]

    def median(self, figure: str) -> float | None:
        found = self.samples(figure)
        return statistics.median(found) if found else None

    @property
    def figures(self) -> list[str]:
        """The names of what was measured, in the order of FIGURES."""
        return [name for name in FIGURES if self.samples(name)]


def spread(samples: Sequence[float]) -> float:
    """How far the outermost sample lies from the median, as a share of it."""
    middle = statistics.median(samples)
    return max(abs(each - middle) for each in samples) / abs(middle) if middle else 0.0


def percentile(samples: Iterable[float], share: float) -> float:
    """The smallest sample that at least this share of all samples does not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
