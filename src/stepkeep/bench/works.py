"""The works that are measured, as data: a name, a measure, its size, where, how often, and whether it is quick."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec

from stepkeep.bench import throughput
from stepkeep.bench.ground import STORES
from stepkeep.bench.measurement import Figures

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

    @property
    def what(self) -> str:
        return (self.measure.__doc__ or "").strip().splitlines()[0]


def _runs(steps: int, runs: int, *, quick: int | None = None, workers: int = 1, **more: Any) -> Work:
    size = {"steps": steps, "runs": runs, "workers": workers}
    return Work(
        name=f"{steps}-step runs" + (f", {workers} workers" if workers > 1 else ""),
        measure=throughput.runs_of_steps,
        size=size,
        quick=None if quick is None else {**size, "runs": quick},
        **more,
    )


WORKS: tuple[Work, ...] = (
    _runs(1, 10_000),
    _runs(3, 5_000, quick=1_500),
    _runs(10, 2_000),
    _runs(3, 5_000, workers=2),
    _runs(3, 5_000, workers=4),
    Work(name="starts", measure=throughput.starts, size={"runs": 10_000}, quick={"runs": 3_000}),
)
