"""The workloads, as data: a name, a measure, its size, databases, rounds, and whether it is quick."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec

from stepkeep_lab.bench import (
    backlog,
    bound,
    cancelling,
    delivery,
    http_service,
    idle,
    judging,
    latency,
    pages,
    restarts,
    throughput,
)
from stepkeep_lab.bench.ground import STORES
from stepkeep_lab.bench.measurement import Figures

OURS, BOUND = "stepkeep", "bound"
DELIVERED = "3-step runs, 64 callers"
"""The main figure: every caller gets the result of its run."""
FLOW = "flow of ten calls"
"""The only flow: its calls without waiting and with results delivered, beside the same steps as a plan."""
THROUGH_HTTP = "3-step runs through HTTP, 64 clients"
"""The same through a service: each client starts a run and gets its result by requests."""
BOTH = STORES
SERVER = ("postgres",)


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to measure. `size` is what the measure is asked for; `quick` what a quick campaign asks for instead."""

    name: str
    measure: Callable[..., Coroutine[Any, Any, Figures]]
    size: Mapping[str, Any]
    quick: Mapping[str, Any] | None = None
    stores: tuple[str, ...] = BOTH
    rounds: int = 3
    subject: str = OURS

    @property
    def what(self) -> str:
        return (self.measure.__doc__ or "").strip().splitlines()[0]


def _runs(steps: int, runs: int, *, quick: int | None = None, workers: int = 1, **more: Any) -> Work:
    size = {"steps": steps, "runs": runs, "workers": workers}
    return Work(
        name=f"{steps:,}-step runs" + (f", {workers} workers" if workers > 1 else ""),
        measure=throughput.runs_of_steps,
        size=size,
        quick=None if quick is None else {**size, "runs": quick},
        **more,
    )


def _fan(steps: int, runs: int, **more: Any) -> Work:
    return Work(name=f"fan of {steps:,}", measure=throughput.fan_out, size={"steps": steps, "runs": runs}, **more)


def _claims(ready: int, *, finished: int = 0, **more: Any) -> Work:
    return Work(
        name=f"claim at {ready:,} ready" + (f", {finished:,} finished" if finished else ""),
        measure=backlog.claims,
        size={"ready": ready, "finished": finished},
        **more,
    )


def _cancels(what: str, measure: Callable[..., Coroutine[Any, Any, Figures]], *, probes: int = 100) -> Work:
    return Work(name=f"handler's end after {what}", measure=measure, size={"probes": probes}, rounds=1)


def _callers(callers: int, runs: int, *, quick: int | None = None, **more: Any) -> Work:
    size = {"steps": 3, "runs": runs, "callers": callers}
    return Work(
        name=f"3-step runs, {callers:,} callers",
        measure=delivery.awaited,
        size=size,
        quick=None if quick is None else {**size, "runs": quick},
        **more,
    )


WORKS: tuple[Work, ...] = (
    _callers(64, 3_000, quick=1_000),
    _callers(1_000, 6_000, rounds=2),
    Work(
        name=THROUGH_HTTP,
        measure=http_service.awaited,
        size={"steps": 3, "runs": 2_000, "clients": 64},
        quick={"steps": 3, "runs": 500, "clients": 64},
    ),
    Work(
        name="one start through HTTP",
        measure=http_service.one_start,
        size={"steps": 3, "probes": 200},
        quick={"steps": 3, "probes": 50},
    ),
    Work(
        name="rolling restart, 500 requests/s",
        measure=restarts.rolling,
        size={"rate": 500, "seconds": 20.0, "clients": 64, "restarts": 3},
        rounds=1,
    ),
    Work(
        name="one 3-step run, embedded",
        measure=delivery.embedded,
        size={"steps": 3, "probes": 200},
        quick={"steps": 3, "probes": 50},
    ),
    _runs(1, 6_000),
    _runs(3, 4_000, quick=1_500),
    _runs(10, 1_500),
    Work(
        name="3-step runs without notifications",
        measure=throughput.without_notifications,
        size={"steps": 3, "runs": 4_000},
        stores=SERVER,
    ),
    _runs(3, 4_000, workers=2, rounds=2),
    _runs(3, 4_000, workers=4, rounds=2),
    _fan(100, 50, rounds=2),
    _fan(10_000, 1, rounds=1),
    Work(name="map of 10,000", measure=throughput.elements, size={"steps": 10_000, "runs": 1}, rounds=3),
    Work(name=FLOW, measure=throughput.calls_of_a_flow, size={"runs": 500}),
    Work(name="3-step runs under slots", measure=throughput.under_slots, size={"steps": 3, "runs": 1_000}),
    _runs(10_000, 1, rounds=1),
    Work(name="starts", measure=throughput.starts, size={"runs": 10_000}, quick={"runs": 3_000}),
    Work(
        name="one 3-step run, idle",
        measure=latency.one_run,
        size={"steps": 3, "probes": 200},
        quick={"steps": 3, "probes": 50},
    ),
    Work(
        name="one 3-step run at 1,000 runs/s",
        measure=latency.under_load,
        size={"steps": 3, "rate": 1_000, "seconds": 10.0},
        rounds=2,
    ),
    _cancels("cancel", cancelling.after_cancel),
    _cancels("failure", cancelling.after_failure),
    _cancels("timeout", cancelling.after_timeout, probes=30),
    *(
        Work(
            name=f"log verify, 1,000,000 {words} lines",
            measure=judging.verify,
            size={"lines": 1_000_000, "runs": 500, "dialect": dialect},
            stores=("sqlite",),
            rounds=1,
        )
        for words, dialect in (("canonical", None), ("workstream", "workstream"))
    ),
    Work(
        name="certify 10,000 runs",
        measure=judging.certify,
        size={"certificates": 10_000, "runs": 500},
        stores=("sqlite",),
        rounds=1,
    ),
    Work(
        name="idle worker",
        measure=idle.idle_worker,
        size={"seconds": 10.0},
        quick={"seconds": 4.0, "settle": 2.0},
        rounds=2,
    ),
    Work(
        name="round trips, 3-step runs",
        measure=idle.round_trips,
        size={"steps": 3, "runs": 2_000},
        stores=SERVER,
        rounds=1,
    ),
    Work(
        name="3-step runs inside the server",
        subject=BOUND,
        measure=bound.inside_the_server,
        size={"steps": 3, "runs": 10_000},
        quick={"steps": 3, "runs": 4_000},
        stores=SERVER,
    ),
    _claims(10_000),
    _claims(10_000, finished=1_000_000, stores=SERVER, rounds=1),
    _claims(1_000_000, rounds=1),
    _claims(3_000_000, stores=SERVER, rounds=1),
    Work(
        name="status at 1,000,000 runs",
        measure=backlog.status,
        size={"ready": 100_000, "finished": 900_000},
        rounds=1,
    ),
    Work(
        name="pages at 1,000,000 runs",
        measure=pages.first_answers,
        size={"runs": 1_000_000},
        stores=SERVER,
        rounds=1,
    ),
    Work(
        name="worker at 1,000,000 ready",
        measure=backlog.memory,
        size={"ready": 1_000_000, "seconds": 10.0},
        stores=SERVER,
        rounds=1,
    ),
)
