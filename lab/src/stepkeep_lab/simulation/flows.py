"""Flows in the simulator: which steps are flows, the function that they run, and what must be true of their calls.

The function is drawn from an argument of its step, so that every replay makes the same calls. `run_seed` draws with it,
`handlers` registers the function, `verdict` calls its check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.definition.python.retry import Retry as RetryOption
from stepkeep.kernel.definition import SECOND, Definition, Flow, Handler, StepDefinition
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import Category, StepState
from stepkeep.kernel.plan import Plan
from stepkeep.worker.answers import StepError
from stepkeep.worker.flows.calls import CallFailed
from stepkeep.worker.flows.context import FlowContext
from stepkeep_lab.simulation.definitions import HANDLERS, PATIENT
from stepkeep_lab.simulation.tables import Tables

FLOW = "flow"
MOST_CALLS = 15
CHECKPOINTS = 0.3
"""How likely a flow records a checkpoint at each place where it may."""
CHILDREN = 0.5
"""How likely a flow that may start a child does so."""
GIVES_UP = 0.4
"""How likely a flow fails after its child has succeeded, so that its run may roll the child back."""
RACES = 0.4
"""How likely a flow lets two calls race, or a call and a timer, and cancels the one that is late."""
FOLLOWS = 50
"""How far the argument of a call that follows another one is from that of the other."""
RACING = 200
"""The argument of the first call that races."""
OTHER = 1_000
"""The argument of the call that other code of a flow makes first."""
CHANGED = 2_000
"""The argument of the call that code makes which was changed under one version."""

CALL_LIMITS = (
    [{"name": "api", "per": "a", "running": 2}],
    [{"name": "all", "running": 3}, {"name": "mail", "per": 1, "rate": "1/2s", "burst": 2}],
)
"""The limits of calls: those of steps (`limited`)."""
FAILED = "failed"
"""What a flow returns in place of the result of a call that failed."""
LEFT = "left"
"""What a flow returns in place of the result of a call that it has cancelled."""

decode = msgspec.json.decode


def with_flows(drawn: Definition, random: Random, share: float, plans: Sequence[Plan] = ()) -> Definition:
    """The definition with some of its steps replaced by flows. Flows may start children of the plans before it."""
    if drawn.dialect != "native":
        return drawn
    children = [plan.definition.name for plan in plans if not plan.segments and not plan.children]
    steps = [flow_step(step, random, children) if random.random() < share else step for step in drawn.steps]
    return replace(drawn, steps=tuple(steps))


def flow_step(step: StepDefinition, random: Random, children: Sequence[str]) -> StepDefinition:
    """A flow in the place of a step. It may start children of these workflows."""
    return StepDefinition(
        name=step.name,
        order=step.order,
        depends_on=step.depends_on,
        on_failure=step.on_failure,
        condition=step.condition,
        executor=Handler(name=FLOW),
        growth=Flow(max=MOST_CALLS, deadline=random.choice((None, None, None, 30 * SECOND))),
        inputs={
            "drawn": (number := random.randrange(1000)),
            "child": children[number % len(children)] if children else "",
        },
        retry=PATIENT,
        timeout=30 * SECOND,
    )


async def play(
    ctx: FlowContext,
    drawn: int,
    checkpoint: Callable[[str], Awaitable[None]],
    child: str = "",
    *,
    follows: bool = False,
    patched: bool = False,
    is_limited: bool = False,
) -> list[Any]:
    """A few calls at once, then a few in a row, some of which are slept before or undone. Returns what each came to.
    Some flows record checkpoints in between, or start a child. With `follows`, two of the calls at once are followed by
    another each, so that the order of their ends decides about the order of calls. With `is_limited`, some count under
    limits.

    With `patched`, one more call is made by code that was changed for it. No two calls have the same arguments.
    """
    random = Random(drawn)  # noqa: S311 - chance that must come out the same again
    apart = Random(drawn + 1_000)  # noqa: S311
    limited = Random(drawn + 3_000)  # noqa: S311
    told: list[Any] = []

    def options() -> dict[str, Any]:
        chosen: dict[str, Any] = {"timeout": f"{random.choice((3, 8, 30))}s"}
        if random.random() < 0.6:
            chosen["retry"] = RetryOption(max_attempts=5, initial="500ms", max="1s")
        if is_limited and limited.random() < 0.7:
            chosen["limits"] = limited.choice(CALL_LIMITS)
        return chosen | ({"undo": "undo"} if random.random() < 0.5 else {})

    async def call(place: int, follower: int | None = None) -> None:
        at = len(told)
        told.append(FAILED)
        with suppress(CallFailed):
            told[at] = await ctx.options(**options()).step(random.choice(HANDLERS), value=place)
        if follower is not None:
            at = len(told)
            told.append(FAILED)
            with suppress(CallFailed):
                told[at] = await ctx.step(HANDLERS[0], value=follower)

    at_once = random.randint(0, 4)
    if apart.random() < CHECKPOINTS:
        await checkpoint("first")
    followed = {0, at_once - 1} if follows else set()
    await asyncio.gather(
        *(call(place, place + FOLLOWS if place in followed else None) for place in range(at_once)),
    )
    if random.random() < 0.3:
        await ctx.sleep("2s")
    if patched and await ctx.patched("new"):
        await call(CHANGED)
    has_child = False
    if child and apart.random() < CHILDREN:
        with suppress(CallFailed):
            deadline = apart.choice((None, None, "20s"))
            await ctx.child(child, ctx.input, deadline=deadline, detached=apart.random() < 0.2)
            has_child = True
    for place in range(at_once, at_once + random.randint(1, 3)):
        await call(place)
        if apart.random() < CHECKPOINTS:
            await checkpoint(f"after-{place}")
    racing = Random(drawn + 3_000)  # noqa: S311
    if racing.random() < RACES:
        at, is_timed = len(told), racing.random() < 0.5
        calls = [ctx.options(**options()).step(HANDLERS[0], value=RACING + n) for n in range(1 if is_timed else 2)]
        told += [LEFT] * len(calls)
        with suppress(TimeoutError):
            async with asyncio.timeout(1.5 if is_timed else None):
                await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        for place, one in enumerate(calls, at):
            if not one.cancel():
                told[place] = FAILED if one.exception() else one.result()
    if has_child and Random(drawn + 2_000).random() < GIVES_UP:  # noqa: S311
        raise StepError("the flow gives up", category=Category.VALIDATION, final=True)
    return told


def wrong_flows(tables: Tables, plans: Mapping[int, Plan], *, changes: bool) -> Iterator[str]:
    """Everything that is wrong with the calls of all flows, after everything has ended. `changes`: some processes had
    other code of flows."""
    for key, rows in tables.steps.items():
        plan = plans[tables.runs[key].definition_id]
        for segment in plan.segments:
            owner = rows[segment.owner]
            if plan.steps[segment.owner].kind.is_flow and owner.fence:
                calls = [row for no, row in sorted(rows.items()) if 0 <= no - segment.first < segment.width]
                tried = () if changes else tables.attempts[key].items()
                if any(no == owner.no and "not deterministic" in (one.error or "") for (no, _), one in tried):
                    yield f"flows: {plan.at(owner.no).name} of run {key[1]} does not fit its own record"
                for said in _wrong_calls(tables, owner, segment.first, calls):
                    yield f"flows: {plan.at(owner.no).name} of run {key[1]} {said}"


def _wrong_calls(tables: Tables, owner: Step, first: int, calls: list[Step]) -> Iterator[str]:
    key = (owner.tenant, owner.run_id)
    record = decode(owner.note.record) if owner.note and owner.note.record else {}
    if owner.state is StepState.FAILED and "not deterministic" in (owner.error or "") and "by" not in record:
        yield f"makes the same calls each time, and failed: {owner.error}"
    grown = None if owner.note is None else owner.note.grown
    free = set() if grown is None else {first + place for place in grown.free}
    if [row.no for row in calls] != sorted({*range(first, first + len(calls) + len(free))} - free):
        yield f"has calls with the numbers {[row.no for row in calls]}"
    made = [(row.note.call.kind, row.note.call.digest) for row in calls if row.note and row.note.call]
    if len(set(made)) != len(calls):
        yield f"has made a call twice: {made}"
    output = tables.output_of(key, owner.no)
    continues = any(kind == "continue" for kind, _ in made)
    if owner.state is not StepState.SUCCEEDED or output is None or continues or "by" in record:
        return
    worked = [row for row in calls if row.note and row.note.call and row.note.call.kind == "step"]
    was_told = decode(output)
    expected = [
        LEFT if told == LEFT else _told(row, tables.output_of(key, row.no))
        for row, told in zip(worked, was_told, strict=False)
    ]
    if was_told != expected or len(worked) != len(was_told):
        yield f"was told {was_told}, and its calls came to {expected}"


def _told(call: Step, output: bytes | None) -> Any:
    """What a flow learns of a call that has ended; one that a person skipped has no result."""
    if call.state is StepState.CANCELLED:
        return LEFT
    if call.state is StepState.SUCCEEDED:
        return None if output is None else decode(output)
    return None if call.state is StepState.SKIPPED and call.category is None else FAILED
