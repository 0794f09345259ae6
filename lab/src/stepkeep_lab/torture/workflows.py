"""The workflows under torture: a chain, a fan, a step that fails at first, a rollback, and slow parallel steps.

Every handler records its effect in the ledger and returns the effect's name, so that every accepted outcome can be
found outside the database.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from stepkeep.definition.python.handlers import step
from stepkeep.definition.python.registry import Registry
from stepkeep.definition.python.retry import Retry
from stepkeep.definition.python.workflow import Workflow
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.machine.states import RunState
from stepkeep.worker.answers import StepError, fail, retry_in
from stepkeep.worker.context import Context
from stepkeep_lab.torture.ledger import Effect, Ledger

PATIENT = Retry(max_attempts=10, max_losses=10, backoff="constant", initial="50ms")


class Kind(msgspec.Struct, frozen=True):
    """A workflow, how its runs end when nothing goes wrong for good, and how many effects that takes."""

    definition: Definition
    ending: RunState
    effects: int


def handlers(folder: Path) -> Registry:
    """The handlers, with the ledger in this folder."""
    registry = Registry()
    ledger = Ledger(folder / "ledger")

    async def record(key: str) -> Effect:
        # A sync can take long on a busy disk, and a good handler does not hold up the loop that it runs on.
        return await asyncio.to_thread(ledger.record, key)

    @step("torture.effect", retry=PATIENT, registry=registry)
    async def effect(ctx: Context, seconds: float = 0.0) -> dict[str, str]:
        if seconds:
            await asyncio.sleep(seconds)
        done = await record(ctx.idempotency_key)
        return {"key": done.key, "nonce": done.nonce}

    @step("torture.flaky", retry=PATIENT, registry=registry)
    async def flaky(ctx: Context) -> dict[str, str] | StepError:
        if ctx.attempt == 1:
            return retry_in("50ms", "the first attempt always fails")
        done = await record(ctx.idempotency_key)
        return {"key": done.key, "nonce": done.nonce}

    @step("torture.refuse", retry=PATIENT, registry=registry)
    async def refuse() -> StepError:
        return fail("this step never succeeds", category="validation")

    return registry


def kinds(lease: str = "1s") -> dict[str, Kind]:
    """The workflows by name, with leases of this length."""
    chain = Workflow("chain", lease=lease)
    for name in ("first", "second", "third"):
        chain.step(name, "torture.effect", inputs={}, retry=PATIENT)

    fan = Workflow("fan", lease=lease)
    opening = fan.step("opening", "torture.effect", inputs={}, retry=PATIENT)
    middle = [fan.step(f"middle-{no}", "torture.effect", inputs={}, after=opening, retry=PATIENT) for no in range(4)]
    fan.step("closing", "torture.effect", inputs={}, after=middle, retry=PATIENT)

    flaky = Workflow("flaky", lease=lease)
    flaky.step("falters", "torture.flaky", inputs={}, retry=PATIENT)
    flaky.step("lingers", "torture.effect", inputs={"seconds": 0.5}, retry=PATIENT)

    rollback = Workflow("rollback", lease=lease, on_failure="compensate")
    for name in ("charge", "ship"):
        rollback.step(name, "torture.effect", inputs={}, undo={"uses": "torture.effect", "with": {}}, retry=PATIENT)
    rollback.step("refuse", "torture.refuse", inputs={}, retry=PATIENT)

    slow = Workflow("slow", lease=lease, input=["seconds"])
    start = slow.step("start", "torture.effect", inputs={}, retry=PATIENT)
    for no in range(8):
        slow.step(
            f"slow-{no}", "torture.effect", inputs={"seconds": "${{ input.seconds }}"}, after=start, retry=PATIENT
        )

    endings = {
        "chain": (chain, RunState.SUCCEEDED, 3),
        "fan": (fan, RunState.SUCCEEDED, 6),
        "flaky": (flaky, RunState.SUCCEEDED, 2),
        "rollback": (rollback, RunState.ROLLED_BACK, 4),
        "slow": (slow, RunState.SUCCEEDED, 9),
    }
    return {name: Kind(workflow.definition(), ending, effects) for name, (workflow, ending, effects) in endings.items()}
