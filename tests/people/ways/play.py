"""Plays one case: the run starts, pal gets a duty, the run goes on, pal tries what the duty forbids, sue gets through.

The oracle knows no rule of the product: pal is refused, the payment does not happen on the say of pal, and it happens
when sue agrees. `ron` does what is harmless. `cases.py` gives a play its parts.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import stepkeep as sk
from stepkeep.kernel.errors import DefinitionError, Refused
from tests.people.ways.places import DUTIES, GATES, GIVEN, KINDS, ONCE, PASSED, SIMPLE, WITHOUT_TERMS, WORKS, WRAPPERS
from tests.people.world import Acting, World

FIRST, OTHER = 1, 1_000_000
"""The amount that is asked for first, and the one that pal would like to have approved with it."""


class Case(NamedTuple):
    """One way round a duty: a value of each table."""

    duty: str
    deed: str
    kind: str
    wrapper: str
    start: str
    course: str
    trick: str

    def __str__(self) -> str:
        return "-".join(self)


class Course(NamedTuple):
    """How a run goes on before pal tries to pass its gate. `adopts`: an approval by someone else, or an earlier one of
    pal, stands behind the gate. `innocent`: it counts in the new run."""

    go: Callable[[Play, str], Awaitable[str]]
    adopts: bool = False
    innocent: bool = False
    paid_before: list[int] = []  # noqa: RUF012 - never changed
    pays: int = FIRST
    waits: bool = False
    versions: bool = False
    shows: bool = True


async def nothing(play: Play) -> None:
    pass


class Trick(NamedTuple):
    """Who pal acts as. `any_name`: it needs a gate without roles. `goes_on`: it works for other acts than a decision.
    `rules` may refuse it besides that of the duty."""

    disguises: Callable[[Play], Awaitable[list[Acting]]]
    prepare: Callable[[Play], Awaitable[None]] = nothing
    rules: tuple[str, ...] = ()
    any_name: bool = False
    goes_on: bool = False


class Play:
    """One case in a world, under names of its own."""

    def __init__(
        self, world: World, case: Case, number: int, start: Start, course: Course, trick: Trick, *, own: bool
    ) -> None:
        self.world, self.case, self.id = world, case, f"case-{number}"
        self.tail = "".join("bcdfghkmnp"[int(digit)] for digit in str(number))
        self.pal, self.sue, self.ron = f"pal{self.tail}", f"sue{self.tail}", f"ron{self.tail}"
        self.tom = f"tom{self.tail}"
        self.duty, self.start, self.course, self.trick = DUTIES[case.duty], start, course, trick
        self.has_own_definition = own or course.versions
        self.given = {"case": self.id, "amount": FIRST, "items": [1, 2]}
        self.workflow = ""
        self.deciding: list[Acting] = []
        """What pal decides `first` through, or has their first vote through, if not as themselves."""
        self._disguises: list[Acting] | None = None

    # -- the definition ----------------------------------------------------------------------------------------------
    def terms(self) -> dict[str, Any]:
        """The terms of the gate that pal must not pass."""
        said: dict[str, Any] = {"quorum": self.duty.quorum}
        said |= {} if self.trick.any_name else {"roles": ["finance"]}
        said |= {"not": [self.duty.excluded]} if self.duty.excluded else {}
        said |= {"facts": {"amount": "${{ input.amount }}"}} if self.course.shows else {}
        if self.case.course == "escalated":
            said |= {"deadline": "30d", "on_deadline": "escalate", "escalate": [{"roles": ["chief"]}]}
        return said

    def definitions(self, version: int = 1, pays: Any = None, **head: Any) -> list[sk.Workflow]:
        """The workflows of this case, children first."""
        registry = self.world.root.registry
        work, gate = sk.Workflow("ways-work", registry=registry), sk.Workflow("ways-gate", registry=registry)
        work.step("work", "ways.work")
        gate.approval("gate", **SIMPLE)
        found = [work, gate] if "child" in self.case.deed or self.case.deed == "map" else []
        wraps = WRAPPERS[self.case.wrapper]
        name = self.name()
        inner = sk.Workflow(f"{name}-in" if wraps else name, version=1 if wraps else version, registry=registry)
        duty = self.duty
        made: dict[str, Callable[[sk.Workflow], Any]] = {
            "hand": lambda flow: flow.step("prep", "ways.noted", completion="manual"),
            "prep": WORKS.get(self.case.deed, WORKS["plain"]),
            "first": GATES.get(self.case.deed, GATES["plain"]),
        }
        if duty.deed in made:
            made[duty.deed](inner)
        KINDS[self.case.kind](inner, "sign", self.terms())
        if duty.constraint:
            inner._head["duties"] = [{duty.constraint: ["first" if duty.deed == "first" else "prep", "sign"]}]
        outer = inner
        found.append(inner)
        if wraps:
            if self.case.wrapper == "grandchild":
                between = sk.Workflow(f"{name}-mid", registry=registry)
                between.workflow("below", inner.name, inputs=PASSED)
                found.append(between)
            outer = sk.Workflow(name, version=version, registry=registry)
            wraps(outer, found[-1].name)
            found.append(outer)
        outer._head |= head
        if self.course.waits:
            outer.wait("go", "go")
        outer.step("pay", "ways.pay", inputs=GIVEN if pays is None else {**GIVEN, "amount": pays}, retry=ONCE)
        return found

    def name(self) -> str:
        """Cases share a definition unless they publish further versions of it, or triggers."""
        case = self.case
        shared = (
            case.duty,
            case.deed,
            case.kind,
            case.wrapper,
            self.trick.any_name,
            self.course.shows,
            self.course.waits,
        )
        parts = [*map(str, shared), str(case.course == "escalated")]
        own = self.id if self.has_own_definition else ""
        return f"{case.duty}-{case.kind}-{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:12]}{own}"

    async def published(self, **head: Any) -> str:
        self.workflow = await self.world.publish(self.definitions(**head))
        return self.workflow

    # -- the people ---------------------------------------------------------------------------------------------------
    async def cast(self) -> None:
        chief = ("chief",) if self.case.course == "escalated" else ()
        await self.world.person(self.pal, "finance", *chief)
        await self.world.person(self.sue, "finance")
        await self.world.person(self.ron)
        if self.duty.deed:
            await self.world.person(self.tom, "finance")

    async def as_(self, name: str) -> Acting:
        return await self.world.acting(name)

    async def decide(self, acting: Acting, at: tuple[str, str]) -> Any:
        """Let a step that waits for a person pass."""
        actor, named = acting
        run_id, step = at
        if step.startswith("sign") and self.case.kind == "exhausted":
            return await actor.decide(run_id, step, "complete", output={}, reason="by hand", **named)
        if step == "prep" or (step.startswith("sign") and self.case.kind == "manual"):
            return await actor.complete(run_id, step, token=self.world.tokens[self.id][-1], **named)
        return await actor.approve(run_id, step, **named)

    async def pass_all(self, name: str, run_id: str, most: int = 8) -> None:
        """A person without a duty decides everything that waits, until nothing does; with a second one for a quorum."""
        for _ in range(most):
            waiting = await self.world.open_steps(run_id)
            if not waiting:
                return
            for at in waiting:
                await self.decide(await self.as_(name if at[1].startswith("sign") else self.tom), at)
            if self.duty.quorum > 1:
                for at in set(waiting).intersection(await self.world.open_steps(run_id)):
                    await self.decide(await self.as_(self.tom), at)
            await self.world.settle(run_id)

    # -- the course of a case -----------------------------------------------------------------------------------------
    async def play(self) -> None:
        """Raise AssertionError where pal got round their duty, or where sue did not get through."""
        await self.cast()
        await self.trick.prepare(self)
        maker = self.pal if self.case.duty == "requester" and not self.course.adopts else self.ron
        try:
            run_id = await self.start(self, maker)
        except DefinitionError:
            if self.must_publish():
                raise
            self.world.unpublished.append(str(self.case))
            return
        await self.earn(run_id)
        first, run_id = run_id, await self.course.go(self, run_id)
        if self.course.adopts and not self.course.innocent and run_id == first:
            assert self.world.paid[self.id] == self.course.paid_before, "paid in a run that stays"
            return
        if self.course.innocent:
            assert await self.world.open_steps(run_id) == [], "the gate opened anew for the same question"
        else:
            await self.attempt(run_id)
            await self.pass_all(self.sue, run_id)
        if self.course.waits and await self.world.state(run_id) == "blocked":
            await self.world.root.send(run_id, "go")
            await self.world.settle(run_id)
        wanted = [*self.course.paid_before, self.course.pays]
        found = self.world.paid[self.id]
        assert found == wanted, f"the innocent twin paid {found} and not {wanted}: {await self.why(run_id)}"

    def must_publish(self) -> bool:
        """Whether the definition must be accepted. One whose duty cannot be enforced may be refused instead."""
        case = self.case
        return case.deed in ("none", "plain", "hold") and case.kind not in WITHOUT_TERMS

    async def why(self, run_id: str) -> str:
        view = await self.world.root.show(run_id)
        steps = [(one["name"], str(one["state"]), one["error"]) for one in view["steps"]]
        return f"{view['run']['state']} {view['run']['error']} {steps}"

    async def earn(self, run_id: str) -> None:
        """Let pal get the duty, and the run go on until it waits at the gate."""
        if self.duty.deed == "prep":
            async with self.world.engine(await self.world.key(self.pal, "work", "read")) as worker:
                working = asyncio.create_task(self.world.settle(run_id, worker))
                # Where pal's worker may not execute what follows, it waits for another one.
                async with asyncio.timeout(60):
                    while not working.done() and set(await self.world.states_of(run_id, "prep")) != {"succeeded"}:
                        await asyncio.wait([working], timeout=0.05)
                await asyncio.wait([working], timeout=0 if self.case.kind in WITHOUT_TERMS else None)
                working.cancel()
            await self.world.settle(run_id)
            return
        await self.world.settle(run_id)
        if self.duty.deed in ("", "vote"):
            if self.duty.deed == "vote":
                for at in await self.world.open_steps(run_id):
                    await self.decide(await self.first_acting(), at)
            return
        waiting = await self.world.open_steps(run_id)
        assert waiting, f"nothing waits for pal's deed: {await self.why(run_id)}"
        for at in waiting:
            await self.decide(await self.first_acting(), at)
        await self.world.settle(run_id)

    async def disguises(self) -> list[Acting]:
        """Those of the trick, put on once."""
        if self._disguises is None:
            self._disguises = await self.trick.disguises(self)
        return self._disguises

    async def first_acting(self) -> Acting:
        return self.deciding[0] if self.deciding else await self.as_(self.pal)

    @staticmethod
    async def refusal(act: Awaitable[Any]) -> str:
        """The rule or the error by which an act is refused."""
        try:
            told = await act
        except Refused as refusal:
            return getattr(refusal, "rule", None) or type(refusal).__name__
        return "repeated" if told.get("repeated") else "accepted"

    async def attempt(self, run_id: str) -> None:
        """Pal tries to pass the gate in every disguise of the trick; nothing comes of it."""
        waiting = await self.world.open_steps(run_id)
        before = list(self.world.paid[self.id])
        assert waiting, f"no gate is open: {before} was paid. {await self.why(run_id)}"
        assert before == self.course.paid_before, f"{before} was paid before anyone decided"
        if self.case.kind in WITHOUT_TERMS and not self.duty.constraint:
            return
        allowed = {self.duty.rule, "repeated", *self.trick.rules} | (
            {"Conflict"} if self.case.duty == "quorum" else set()
        )
        for at in waiting:
            for acting in await self.disguises():
                rule = await self.refusal(self.decide(acting, at))
                assert rule in allowed, f"{acting[1] or self.pal} at {at[1]}: {rule}, and not one of {sorted(allowed)}"
        await self.world.settle(run_id)
        assert self.world.paid[self.id] == before, "paid"


Start = Callable[[Play, str], Awaitable[str]]
"""Start the run of a case so that this person is a cause of it."""


async def migrate(play: Play, run_id: str, acting: Acting, version: int, **head: Any) -> str:
    """The run under a further version; the same run, with what was decided about it, if it stays."""
    await play.world.publish(play.definitions(version, **head))
    actor, named = acting
    try:
        told = await actor.migrations.migrate(run_id, version, **named)
    except sk.Conflict:
        return run_id
    return str(told["new_run_id"])
