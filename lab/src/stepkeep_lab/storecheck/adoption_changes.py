"""The last part of a differential life: a run is retried twice, its retry is retried, and it is forked, on both stores.

Chance seldom ends a run with a finished step, and then continues it twice. This does, through the same operations, in
every life. `differential` calls it for each tenant and compares every answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from stepkeep.kernel.composition.continuation import ContinuationKind
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations.continuation import going_on
from stepkeep.operations.continuation.going_on import ContinuationOptions
from stepkeep.operations.people import people
from stepkeep_lab.storecheck.bench import ACTOR, Bench

OnBoth = Callable[[Callable[[Bench, int], Awaitable[Any]], str], Awaitable[list[Any]]]
"""Does something on the model and on the store, which must answer alike."""

WORKFLOW, NEXT = ("letters", 1), "second"
"""Its first step needs a message and no worker: what else is ready in that life does not matter."""


async def continue_one(on_both: OnBoth, plans: Sequence[Plan], tenant: str) -> list[str]:
    """Let a run end with a finished step, and continue it in every way. It returns the runs that it made."""
    by: dict[str, Any] = {"caller": Caller(tenant, ACTOR)}

    async def goes_on(run: str, how: ContinuationKind) -> Any:
        wanted = ContinuationOptions(how=how, start=NEXT if how is ContinuationKind.FORK else None)
        return (
            await on_both(
                lambda bench, _: going_on.continue_run(bench.transactor, bench.starter, run, wanted, **by),
                f"{how} at last",
            )
        )[0]

    async def cancel(run: str) -> None:
        await on_both(lambda bench, _: people.cancel(bench.transactor, run, compensate=False, **by), "cancel at last")

    async def look(bench: Bench, _: int) -> Any:
        adopted = await bench.store.read_adoptions(tenant, made)
        rows = sorted((one.source_run, one.run_id, one.no, one.source_step, one.owned) for one in adopted)
        return rows, [await bench.store.find_reruns(tenant, run, limit) for run in made for limit in (1, 9)]

    started = (await on_both(lambda bench, place: bench.begin(plans[place], **by), "start at last"))[0]
    made: list[str] = [started.run_id]
    sent: dict[str, Any] = {"caller": Caller(tenant, "outside"), "message_id": "the last"}
    await on_both(lambda bench, _: people.send(bench.transactor, made[0], "paid", b"{}", **sent), "send at last")
    await cancel(made[0])
    made.append((await goes_on(made[0], ContinuationKind.RETRY)).run_id)
    await goes_on(made[0], ContinuationKind.RETRY)  # refused: that run is retried already
    await cancel(made[1])
    made.append((await goes_on(made[1], ContinuationKind.RETRY)).run_id)
    made += [(await goes_on(made[0], ContinuationKind.FORK)).run_id for _ in range(2)]
    await on_both(look, "adopted at last")
    return made
