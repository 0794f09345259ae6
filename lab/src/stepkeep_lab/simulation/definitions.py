"""Random definitions over every feature of the canonical definition, with real expressions.

Names are short and shared, so that a counterexample is easy to read. What a drawn definition asks for is what front
ends may ask for; sense it need not make.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.definition import (
    SECOND,
    Amount,
    Approval,
    Backoff,
    Budget,
    Case,
    CompensateWhen,
    Completion,
    Definition,
    Dependency,
    Duty,
    Effect,
    Handler,
    HookFailure,
    Incompatible,
    Level,
    Loop,
    Map,
    OnDeadline,
    OnExceeded,
    OnExhausted,
    PolicyEffect,
    PolicyRule,
    Retry,
    Rule,
    StepDefinition,
    Switch,
    Undo,
    Wait,
)
from stepkeep.kernel.machine.states import RETRIED_BY_DEFAULT, Category, ErrorClass, OnFailure, StepState
from stepkeep_lab.simulation.gathering import draw_takes

S = StepState
EVENTS = ("paid", "shipped")
HANDLERS = ("h0", "h1", "h2")
EXACT = "exact"
CAPABILITY = "gpu"
EDGES = ((S.SUCCEEDED,), (S.SUCCEEDED,), (S.SUCCEEDED, S.SKIPPED), (S.SUCCEEDED, S.SKIPPED, S.FAILED, S.CANCELLED))
BIASES = {
    "gate": (0.05, 0.15, 0.5),
    "wait": (0.05, 0.15, 0.4),
    "condition": (0.0, 0.1, 0.4),
    "manual": (0.0, 0.2, 0.6),
    "exact": (0.0, 0.2, 0.7),
    "rules": (0.1, 0.3, 0.8),
    "undo": (0.3, 0.6, 0.9),
    "hold": (0.0, 0.1, 0.4),
    "gpu": (0.0, 0.2, 0.6),
    "patient": (0.0, 0.3, 0.7),
}
"""How much of each kind of step a definition has; each draws its own shares."""

PATIENT = Retry(max_attempts=9, max_losses=5, initial=SECOND // 2, max=SECOND)
ROLE = "finance"
VOTERS = ("ann", "bea", "cyd", "dan", "eve", "fay", "gus")
"""The people who decide gates. All are in finance, but dan leaves it and eve joins it while a simulation goes on."""

REQUESTERS = VOTERS[:3]
"""The people who ask for runs."""

UNHELD_ROLE = "audit"
"""A role that nobody has."""

SERVICE = "robot"
"""A program that tries to decide gates; some name it."""

DEADLINES = (None, None, 8 * SECOND, 20 * SECOND)
RULES = ("output.ok", "output.ok || true", "output.ok || true", "output.nothing == 1")
SHAPES = ("graph", "graph", "graph", "chain", "fan", "fan", "loose")
POLICIES = (OnFailure.ABORT, OnFailure.SKIP, OnFailure.CONTINUE, OnFailure.COMPENSATE, OnFailure.COMPENSATE)
RETRIED = tuple(sorted(RETRIED_BY_DEFAULT))
CLASSES = (msgspec.UNSET, msgspec.UNSET, (ErrorClass.RATE_LIMIT,), (ErrorClass.SERVER_ERROR, ErrorClass.TRANSPORT))
NEVER_HOLDS = "1 == 2"
WHENS = (
    "step.attempt > 1",
    "step.attempt == 1",
    "input.n > 0",
    "input.nothing.there == 1",
    "cost.attempts > 2.0",
    'principal.name == "nobody"',
)
"""When a rule of a policy speaks."""


def maybe(random: Random, chance: float) -> bool:
    return random.random() < chance


def draw_definition(
    random: Random, name: str, most: int, *, shape: str = "", bias: Mapping[str, float] | None = None
) -> Definition:
    """A workflow of at most this many steps; a shape and shares of kinds of steps may be given."""
    size = random.randint((most + 1) // 2, most)
    names = [f"s{place}" for place in range(size)]
    drawn = random.choice(SHAPES)
    shares = {kind: random.choice(choices) for kind, choices in BIASES.items()} | dict(bias or {})
    steps = tuple(_step(random, shape or drawn, shares, names, place) for place in range(size))
    return Definition(
        name=name,
        version=1,
        steps=steps,
        timeout=random.choice((None, None, None, 20 * SECOND, 60 * SECOND)),
        on_failure=random.choice(POLICIES),
        hook_failure=random.choice(list(HookFailure)),
        compensate_always=maybe(random, 0.2),
        rules=(Rule(expression=random.choice(("1 == 1",) * 4 + ("1 == 2",))),) if maybe(random, 0.3) else (),
        lease=random.choice((4, 6, 10, 15)) * SECOND,
        grace=random.choice((1, 3, 8, 30)) * SECOND,
        priority=random.choice((0, 0, 5)),
        policy=_policy(_beside(random), names),
        budget=_budget(_beside(random)),
        slots=_slots(_beside(random)),
        duties=_duties(_beside(random), steps),
    )


def _duties(random: Random, steps: tuple[StepDefinition, ...]) -> tuple[Duty, ...] | msgspec.UnsetType:
    """Two steps of some workflows that one owner may not execute. No person decides about them."""
    worked = [
        one.name
        for one in steps
        if one.executor is not None and one.hold is None and not one.on_exhausted and one.completion is Completion.AUTO
    ]
    random.random(), random.random()  # other numbers than those that decide about a policy and slots
    is_limited = maybe(random, 0.2) and len(worked) > 1
    return (Incompatible(steps=tuple(random.sample(worked, 2))),) if is_limited else msgspec.UNSET


def _slots(random: Random) -> int | msgspec.UnsetType:
    """A limit on the running runs of some workflows."""
    random.random()  # another number than the one that decides about a policy
    return random.choice((1, 1, 2)) if maybe(random, 0.2) else msgspec.UNSET


def _resources(random: Random) -> dict[str, Amount] | msgspec.UnsetType:
    """What some steps need while a worker holds them: of two resources, one of them a pool."""
    if not maybe(random, 0.12):
        return msgspec.UNSET
    drawn: dict[str, Amount] = {"repo": random.choice(("exclusive", "exclusive", "shared"))}
    pool: dict[str, Amount] = {"cpu": random.choice((1, 1, 2))}
    return random.choice((drawn, drawn, pool, pool | drawn))


def _policy(random: Random, names: list[str]) -> tuple[PolicyRule, ...] | msgspec.UnsetType:
    """Rules for some steps of some workflows. Most let a step go on, so that the rest of a run is met too."""
    if not maybe(random, 0.3):
        return msgspec.UNSET
    if maybe(random, 0.25):
        # Two rules hold one step, the second only before a retry: an approval of the first permits nothing more.
        hold = PolicyRule(name="first", then=PolicyEffect.HOLD, when="step.attempt == 1", steps=(random.choice(names),))
        return (hold, replace(hold, name="again", when=None))
    rules = []
    for place in range(random.randint(1, 3)):
        effect = random.choice(list(PolicyEffect))
        terms = Approval(deadline=random.choice(DEADLINES), on_deadline=random.choice(list(OnDeadline)))
        rules.append(
            PolicyRule(
                name=f"r{place}",
                then=effect,
                when=random.choice(WHENS),
                steps=(random.choice(names),),
                approval=terms if effect is PolicyEffect.HOLD and maybe(random, 0.7) else None,
            )
        )
    return tuple(rules)


def _budget(random: Random) -> Budget | msgspec.UnsetType:
    if not maybe(random, 0.1):
        return msgspec.UNSET
    return Budget(limits={"attempts": float(random.randint(2, 8))}, on_exceeded=random.choice(list(OnExceeded)))


def correspondence(name: str) -> Definition:
    """A workflow that does nothing until it is paid, so that its run takes as many messages as anybody sends."""
    return Definition(
        name=name,
        version=1,
        steps=(
            StepDefinition(name="s0", order=0, wait=Wait(event=EVENTS[0])),
            StepDefinition(
                name="s1",
                order=1,
                executor=Handler(name=HANDLERS[0]),
                depends_on=(Dependency(step="s0"),),
                retry=PATIENT,
            ),
            StepDefinition(name="s2", order=2, wait=Wait(event=EVENTS[1]), depends_on=(Dependency(step="s1"),)),
            StepDefinition(
                name="s3",
                order=3,
                executor=Handler(name=HANDLERS[1]),
                depends_on=(Dependency(step="s2"),),
                retry=PATIENT,
            ),
        ),
    )


def _step(random: Random, shape: str, bias: dict[str, float], names: list[str], place: int) -> StepDefinition:
    after = _after(random, shape, names[:place])
    edges = tuple(Dependency(step=one, allow=random.choice(EDGES)) for one in after)
    settings: dict[str, Any] = {
        "name": names[place],
        "order": place,
        "depends_on": edges,
        "on_failure": random.choice((OnFailure.SKIP,) if bias.get("tolerated") else POLICIES),
        "condition": _condition(random, after) if maybe(random, bias["condition"]) else None,
    }
    kind = random.random()
    if kind < bias["gate"]:
        return StepDefinition(approval=_approval(random, bias), **settings)
    if kind < bias["gate"] + bias["wait"]:
        takes = draw_takes(_beside(random))
        wait = Wait(event=random.choice(EVENTS), deadline=random.choice(DEADLINES), **takes)
        if maybe(_beside(random), 0.15):
            wait = Wait(event="sleep", deadline=5 * SECOND, sleeps=True)
        return StepDefinition(wait=wait, **settings)
    return _work(random, bias, settings)


def _on_exhausted(random: Random) -> OnExhausted | msgspec.UnsetType:
    """A quarter of the steps hold when no attempt is left; of these, one in five cannot be skipped."""
    drawn = random.random()
    return OnExhausted.HOLD if drawn < 0.2 else OnExhausted.HOLD_REQUIRED if drawn < 0.25 else msgspec.UNSET


def _after(random: Random, shape: str, earlier: list[str]) -> list[str]:
    if not earlier or shape == "loose":
        return []
    if shape == "chain":
        return earlier[-1:]
    if shape == "fan":
        return earlier[:1]
    return [one for one in earlier if maybe(random, 0.45)]


def _work(random: Random, bias: dict[str, float], settings: dict[str, Any]) -> StepDefinition:
    hook = None
    if maybe(random, bias["undo"]):
        retry = replace(_retry(random), counts_losses=_beside(random).choice((False, False, msgspec.UNSET)))
        hook = Undo(
            executor=Handler(name="undo"),
            retry=retry,
            timeout=random.choice((4, 20)) * SECOND,
            on_exhausted=OnExhausted.HOLD if maybe(_beside(random), 0.2) else msgspec.UNSET,
        )
    manual = maybe(random, bias["manual"])
    transactional = not manual and maybe(random, bias["exact"])
    rules = (
        Rule(expression=random.choice(("output.ok", "output.ok || true", "output.ok || true", "output.nothing == 1"))),
    )
    certain = [edge.step for edge in settings["depends_on"] if edge.allow == (S.SUCCEEDED,)]
    inputs = None
    if certain and maybe(random, 0.4):
        inputs = {"value": f'${{{{ steps["{random.choice(certain)}"].output }}}}'}
    step = StepDefinition(
        executor=Handler(name=EXACT if transactional else random.choice(HANDLERS)),
        hold=_approval(random, bias) if maybe(random, bias["hold"]) else None,
        on_exhausted=_on_exhausted(_beside(random)),
        inputs=inputs,
        retry=PATIENT if maybe(random, bias["patient"]) else _retry(random),
        timeout=random.choice((3, 8, 30)) * SECOND,
        rules=rules if maybe(random, bias["rules"]) else (),
        pre=_pre(_beside(random)),
        completion=Completion.MANUAL if manual else Completion.AUTO,
        completion_deadline=random.choice(DEADLINES),
        undo=hook,
        effect=random.choice(list(Effect)) if hook is None else Effect.WRITE,
        compensate_when=random.choice(list(CompensateWhen)),
        transactional=transactional,
        capabilities=(CAPABILITY,) if maybe(random, bias["gpu"]) else (),
        resources=_resources(_beside(random)),
        **settings,
    )
    may_grow = not manual and not transactional
    return _grown(step, _beside(random), bias.get("grown", 0.08)) if may_grow else step


def _grown(step: StepDefinition, random: Random, share: float) -> StepDefinition:
    """The same step, or one that owns elements: a map, a loop, or a choice."""
    if not maybe(random, share):
        return step
    if maybe(_beside(random), 0.25):
        return _choosing(step, _beside(random))
    deadline = random.choice((None, None, None, 20 * SECOND))
    growth: Map | Loop = Map(
        over=f"${{{{ {list(range(random.choice((0, 1, 2, 3, 5, 8))))} }}}}",
        max=random.choice((4, 50)),
        in_flight=random.choice((1, 2, 3, 6)),
        tolerate=random.choice((0, 0, 1, 2)),
        early_stop=maybe(random, 0.7),
        deadline=deadline,
    )
    if maybe(random, 0.35):
        asks = {"until": f"index >= {random.randint(0, 2)}"} if maybe(random, 0.5) else {"as_long_as": "index < 2"}
        growth = Loop(max=random.randint(1, 3), pause=random.choice((0, 2)) * SECOND, deadline=deadline, **asks)
    # What a front end refuses beside a map or a loop.
    return replace(step, growth=growth, pre=msgspec.UNSET, on_exhausted=msgspec.UNSET)


def _choosing(step: StepDefinition, random: Random) -> StepDefinition:
    """A choice between variants of this step. Sometimes no case is left, or a condition cannot be evaluated."""
    case = replace(step, pre=msgspec.UNSET, on_exhausted=msgspec.UNSET, depends_on=(), condition=None, hold=None)
    variants = (case, replace(case, undo=None, retry=replace(case.retry, max_attempts=1)))
    conditions = random.choice(
        (("true", "true"), ("false", "true"), ("false", None), (None,), ("false",), ("1/0 > 0", None))
    )
    cases = tuple(Case(name=f"c{place}", when=when, step=variants[place % 2]) for place, when in enumerate(conditions))
    owner = StepDefinition(name=step.name, order=step.order, hold=step.hold, on_failure=step.on_failure)
    return replace(
        owner,
        growth=Switch(max=len(cases), cases=cases),
        depends_on=step.depends_on,
        condition=step.condition,
    )


def _beside(random: Random) -> Random:
    """A generator that follows from this one and takes no number from it: later draws stay as they were."""
    return Random(str(random.getstate()[1][-9:]))  # noqa: S311 - chaos, not a secret


def _pre(random: Random) -> tuple[Rule, ...] | msgspec.UnsetType:
    """Rules before the handler, which mostly hold."""
    if not maybe(random, 0.2):
        return msgspec.UNSET
    return (Rule(expression=random.choice(("1 == 1", "1 == 1", NEVER_HOLDS))),)


def _approval(random: Random, bias: Mapping[str, float]) -> Approval:
    """A gate that the first decision settles, or one with people of its own, levels and reminders.

    Of the shares, `levels` is of gates that several people decide and that escalate, `nobody` of gates that ask for
    people who are mostly ruled out, whatever else is drawn.
    """
    plain = Approval(deadline=random.choice(DEADLINES), on_deadline=random.choice((OnDeadline.REJECT, OnDeadline.FAIL)))
    chance = _beside(random)
    levels, nobody = bias.get("levels", 0.0), bias.get("nobody", 0.0)
    if nobody and maybe(chance, nobody):
        return _unstaffed(plain, chance)
    if levels and maybe(chance, levels):
        return replace(
            plain,
            deadline=8 * SECOND,
            on_deadline=OnDeadline.ESCALATE,
            roles=(ROLE,),
            quorum=chance.choice((2, 3)),
            reject_on=2,
            excluded=chance.choice(((), ("requester",))),
            escalate=(Level(roles=(ROLE,), deadline=8 * SECOND), Level(approvers=VOTERS)),
        )
    if maybe(chance, 0.5):
        return plain
    full = replace(
        plain,
        on_deadline=chance.choice(list(OnDeadline)),
        roles=chance.choice(((), (ROLE,))),
        quorum=chance.choice((1, 2, 3)),
        reject_on=chance.choice((msgspec.UNSET, 2)),
        excluded=chance.choice(((), ("requester",))),
        escalate=chance.choice((msgspec.UNSET, (Level(approvers=(*VOTERS, SERVICE), deadline=4 * SECOND), Level()))),
        remind=chance.choice((msgspec.UNSET, 3 * SECOND)),
    )
    if full.escalate is msgspec.UNSET or maybe(chance, 0.3):
        return full
    # Most gates with levels reach the second one, with decisions from the first.
    return replace(full, on_deadline=OnDeadline.ESCALATE, deadline=chance.choice((3, 6)) * SECOND)


def _unstaffed(plain: Approval, chance: Random) -> Approval:
    """A gate of a role that nobody has, or of people of whom some or all asked for the run."""
    if maybe(chance, 0.4):
        return replace(plain, roles=(UNHELD_ROLE,), excluded=chance.choice(((), ("requester",))))
    approvers = tuple(chance.sample(REQUESTERS, chance.choice((1, 1, 2))))
    return replace(plain, approvers=approvers, quorum=chance.choice((1, 2)), excluded=("requester",))


def _retry(random: Random) -> Retry:
    without_timeouts = tuple(one for one in RETRIED if one is not Category.TIMEOUT)
    return Retry(
        max_attempts=random.randint(1, 5),
        max_losses=random.randint(1, 3),
        backoff=random.choice(list(Backoff)),
        initial=random.choice((0, SECOND // 2, SECOND)),
        jitter=random.choice((0.0, 0.5)),
        max=random.choice((None, SECOND, 3 * SECOND)),
        on=random.choice((RETRIED, RETRIED, without_timeouts)),
        max_elapsed=_beside(random).choice((msgspec.UNSET, msgspec.UNSET, msgspec.UNSET, 10 * SECOND)),
        classes=Random(f"classes {_beside(random).random()}").choice(CLASSES),  # noqa: S311 - chaos, not a secret
    )


def _condition(random: Random, after: list[str]) -> str:
    texts = ["input.n > 0"] * 4 + ["input.n > 100", "input.nothing.there == 1"]
    if after:
        one = random.choice(after)
        texts += 2 * [f'steps["{one}"].state == "succeeded"', f'has(steps["{one}"].output)']
    return random.choice(texts)
