"""The parameters of one seed: how many of everything, and the rate of each kind of fault.

Swarm testing: each seed draws its own rates, many of them zero, because faults hide each other. A scenario is plain
data, so that a failing one can be reduced field by field and passed on as JSON.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds are virtual. Rates of faults are per round trip unless a comment says otherwise.

    `threads` is how many of a worker's attempts may be blocking: transactional steps and the rules of runs.
    `alike` means that all runs are of one definition and start at once, with handlers that take no time.
    `shape` and `bias` say what definitions look like where that is not left to chance, `dialects` which share of them
    is written in one of the dialects, `work` how much longer than usual handlers take. `slow_at` and `pause_at` name
    the only statement at which that happens (then often), `standstill` is how long a process stands still at most.
    `sinks` is how many sinks there are; with any, workers relay events to them.
    `workflow_pauses` is how often a workflow is paused, with its live runs; `pauses` how often a run is.
    `stuck` means that decisions about single steps are made only where a step may be decided about.
    `families` is which share of the steps starts a child run.
    `flows` is which share of the steps is a flow, whose calls are steps too. `rollouts` is which share of the worker
    processes has other code of flows, which fits no run of the usual code.
    `continued` is which share of the workflows is a flow that continues as new.
    `limits` is which share of the steps counts under limits, `rules` how often an operator changes their rules.
    `remote` is how many more workers there are that reach the service alone, and no database.
    `letters` is how many messages the first run is sent one by one before it may go on: each is a journal entry.
    """

    seed: int
    runs: int = 3
    workers: int = 2
    concurrency: int = 4
    threads: int = 64
    steps: int = 5
    chaos: float = 30.0
    alike: bool = False
    shape: str = ""
    bias: dict[str, float] = {}
    dialects: float = 0.0
    work: float = 1.0
    # the way to the database
    request_lost: float = 0.0
    reply_lost: float = 0.0
    crash_before: float = 0.0
    crash_after: float = 0.0
    pause: float = 0.0
    pause_at: str = ""
    standstill: float = 25.0
    partition: float = 0.0
    slow: float = 0.0
    slow_at: str = ""
    latency: float = 0.002
    tick: float = 0.0
    # per notification and listener
    hint_lost: float = 0.0
    hint_late: float = 0.0
    hint_doubled: float = 0.0
    # per second
    restart: float = 0.0
    kill: float = 0.0
    drain: float = 0.0
    serverkill: float = 0.0
    # handlers, per attempt
    fail: float = 0.0
    hang: float = 0.0
    deaf: float = 0.0
    wait: float = 0.0
    poison: float = 0.0
    emit: float = 0.0
    # people and the outside, per look
    approve: float = 0.0
    reject: float = 0.0
    complete: float = 0.0
    cancel: float = 0.0
    send: float = 0.0
    noise: float = 0.0
    duplicate: float = 0.0
    quarantine: float = 0.0
    pauses: float = 0.0
    workflow_pauses: float = 0.0
    decisions: float = 0.0
    stuck: bool = False
    migrations: float = 0.0
    staff: float = 0.0
    policies: float = 0.0
    skew: float = 0.0
    families: float = 0.0
    flows: float = 0.0
    rollouts: float = 0.0
    planners: float = 0.0
    continued: float = 0.0
    limits: float = 0.0
    rules: float = 0.0
    remote: int = 0
    letters: int = 0
    long: bool = False
    sinks: int = 0


FAULTS = {
    "request_lost": 0.04,
    "reply_lost": 0.05,
    "crash_before": 0.008,
    "crash_after": 0.008,
    "pause": 0.025,
    "partition": 0.025,
    "slow": 0.06,
    "restart": 0.15,
    "kill": 0.15,
    "drain": 0.15,
    "serverkill": 0.1,
}
"""Each fault with its highest rate."""

STATEMENTS = ("", "", "", "lock", "propose", "load", "write", "commit", "record", "renew", "find due")
"""What may be slow in a seed: anything (the empty one) now and then, or one kind of statement often."""

HABITS = {
    "fail": 0.5,
    "hang": 0.2,
    "deaf": 0.1,
    "wait": 0.4,
    "poison": 0.15,
    "emit": 0.4,
    "approve": 1.0,
    "reject": 0.3,
    "complete": 1.0,
    "cancel": 0.1,
    "send": 1.0,
    "noise": 0.5,
    "duplicate": 0.5,
    "skew": 0.4,
    "hint_late": 0.5,
    "hint_doubled": 0.5,
}
"""What handlers, people and clocks do and what happens to hints, with the highest rates."""


NONE = dict.fromkeys(FAULTS, 0.0)
ONLY_WORK = {"gate": 0.0, "wait": 0.0, "hold": 0.0, "manual": 0.0, "condition": 0.0, "patient": 1.0}

THEMES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    # Workers are cut off and come back while only they can do the work: late reports meet their own new claims.
    {**NONE, "partition": 0.04, "workers": 2, "concurrency": 4, "chaos": 40.0, "bias": ONLY_WORK | {"gpu": 1.0}},
    {**NONE, "partition": 0.02, "workers": 3, "concurrency": 4, "chaos": 40.0, "bias": ONLY_WORK | {"gpu": 1.0}},
    {**NONE, "partition": 0.04, "workers": 3, "concurrency": 2, "work": 3.0, "chaos": 40.0, "bias": ONLY_WORK},
    # Workers stand still while their last word is on its way, and perhaps rules are yet to run.
    {**NONE, "pause": 0.06, "concurrency": 1, "runs": 8, "bias": ONLY_WORK | {"rules": 0.5}},
    # Sweepers act on what they found long ago.
    {"slow": 0.06, "slow_at": "lock", "workers": 3, "fail": 0.6, "kill": 0.1, "bias": {"gate": 0.0, "wait": 0.1}},
    # Workers come and go in good order, and nothing else happens.
    {**NONE, "drain": 0.5, "hang": 0.2, "workers": 3, "bias": ONLY_WORK},
    # Many runs reach their forks together.
    {"alike": True, "shape": "fan", "runs": 12, "concurrency": 2, "bias": ONLY_WORK},
    {**NONE, "alike": True, "shape": "graph", "runs": 12, "concurrency": 3, "bias": ONLY_WORK | {"rules": 0.5}},
    # There is always more to do than there is room for.
    {**NONE, "shape": "loose", "steps": 7, "runs": 10, "workers": 1, "concurrency": 2, "bias": ONLY_WORK},
    {"shape": "loose", "steps": 7, "runs": 10, "pause": 0.04, "workers": 1, "concurrency": 2, "bias": ONLY_WORK},
    {
        **NONE,
        "shape": "fan",
        "runs": 12,
        "workers": 1,
        "concurrency": 2,
        "work": 0.2,
        "bias": ONLY_WORK | {"rules": 0.5},
    },
    # People and time end runs under the hands of transactional steps.
    {"cancel": 0.5, "hang": 0.3, "bias": {"exact": 1.0, "manual": 0.0, "gate": 0.1}},
    # Everything waits for people, who click twice.
    {"shape": "chain", "noise": 1.0, "approve": 0.3, "bias": {"gate": 0.6, "wait": 0.0}},
)
"""What a seed is about, laid over what was drawn: the corners that chance alone visits too rarely."""

OBEDIENT = dict.fromkeys(("fail", "hang", "deaf", "wait", "poison", "cancel"), 0.0)
PLAIN = {**NONE, **OBEDIENT, "alike": False, "dialects": 0.0, "limits": 0.0}
"""Native definitions whose handlers do nothing but succeed, so that what goes wrong is what a corner says."""

CORNERS: dict[str, dict[str, Any]] = {
    # Reports fill the room that a worker had when it began to look for work.
    "full house": {
        **PLAIN,
        "slow": 0.12,
        "slow_at": "has ready",
        "hint_lost": 1.0,
        "shape": "fan",
        "steps": 7,
        "runs": 32,
        "workers": 2,
        "concurrency": 4,
        "work": 2.0,
        "chaos": 60.0,
        "bias": ONLY_WORK | {"exact": 0.0},
    },
    # The answer to a report takes so long that its job is given up, and its rules are yet to run.
    "late answer": {
        **PLAIN,
        "slow": 0.02,
        "slow_at": "commit",
        "runs": 32,
        "workers": 2,
        "concurrency": 2,
        "chaos": 40.0,
        "bias": ONLY_WORK | {"exact": 0.0, "rules": 1.0},
    },
    # Workers stand still right after they were heard, are missed, and end before they are heard again.
    "gone unheard": {
        **NONE,
        "pause": 0.03,
        "pause_at": "find silent",
        "standstill": 90.0,
        "runs": 8,
        "workers": 3,
        "chaos": 40.0,
        "long": False,
        "bias": ONLY_WORK,
    },
    # Workers stand still with the plainest of reports in hand, and others run meanwhile what they report on.
    "plain and late": {
        **PLAIN,
        "pause": 0.03,
        "pause_at": "record",
        "shape": "chain",
        "steps": 4,
        "runs": 12,
        "workers": 3,
        "concurrency": 4,
        "work": 4.0,
        "chaos": 60.0,
        "emit": 0.0,
        "long": False,
        "bias": ONLY_WORK | {"exact": 0.0, "rules": 0.0},
    },
    # What has a transaction to itself follows what only waits, and there is less room for it.
    "few threads": {
        **PLAIN,
        "alike": True,
        "shape": "chain",
        "steps": 6,
        "runs": 24,
        "workers": 2,
        "concurrency": 8,
        "threads": 2,
        "chaos": 40.0,
        "bias": ONLY_WORK | {"exact": 0.5},
    },
    # The only worker stands still with a report in hand that was decided from memory, until its lease has run out.
    "late from memory": {
        **PLAIN,
        "pause": 0.03,
        "pause_at": "record",
        "shape": "chain",
        "steps": 4,
        "runs": 12,
        "workers": 1,
        "concurrency": 4,
        "work": 4.0,
        "chaos": 60.0,
        "long": False,
        "bias": ONLY_WORK | {"exact": 0.0, "rules": 0.0},
    },
    # Handlers outlast their first lease, which is renewed; then their rules run under it.
    "renewed, then judged": {
        **PLAIN,
        "shape": "chain",
        "steps": 3,
        "runs": 24,
        "workers": 2,
        "concurrency": 8,
        "work": 8.0,
        "chaos": 60.0,
        "bias": ONLY_WORK | {"exact": 0.0, "rules": 1.0},
    },
    # Gates have levels and quorums, few people decide, and their roles, keys and delegations change meanwhile.
    "roles change": {
        **PLAIN,
        "shape": "fan",
        "steps": 4,
        "runs": 16,
        "workers": 2,
        "approve": 0.35,
        "reject": 0.02,
        "noise": 0.2,
        "staff": 1.0,
        "chaos": 40.0,
        "long": False,
        "bias": ONLY_WORK | {"gate": 0.6, "hold": 0.5, "levels": 1.0},
    },
    # Several steps wait for messages of one name and choose among them; many messages come, before the wait and after.
    "choosy waits": {
        **PLAIN,
        "shape": "fan",
        "steps": 5,
        "runs": 10,
        "workers": 1,
        "send": 0.6,
        "noise": 0.6,
        "duplicate": 0.3,
        "latency": 0.0005,
        "chaos": 20.0,
        "long": False,
        "bias": ONLY_WORK | {"wait": 0.85},
    },
    # Attempts fail, and people decide about the steps that are retried or hold, in formats that need every step.
    "stuck steps": {
        **PLAIN,
        "fail": 0.6,
        "dialects": 0.4,
        "steps": 4,
        "runs": 16,
        "workers": 2,
        "decisions": 1.0,
        "stuck": True,
        "chaos": 30.0,
        "long": False,
        "bias": ONLY_WORK | {"exact": 0.0, "rules": 0.8},
    },
    # Children finish, and then their parents fail or are cancelled, and undo them.
    "trees undone": {
        **PLAIN,
        "fail": 0.1,
        "cancel": 0.1,
        "families": 0.6,
        "shape": "chain",
        "steps": 3,
        "runs": 16,
        "workers": 2,
        "concurrency": 4,
        "work": 0.3,
        "chaos": 30.0,
        "long": False,
        "bias": ONLY_WORK | {"undo": 0.55, "rules": 0.0},
    },
    # Flows continue as new again and again, while processes end, answers are lost and people cancel.
    "chains broken": {
        **PLAIN,
        "request_lost": 0.03,
        "reply_lost": 0.04,
        "crash_before": 0.004,
        "crash_after": 0.004,
        "kill": 0.15,
        "fail": 0.1,
        "cancel": 0.25,
        "continued": 0.8,
        "steps": 3,
        "runs": 16,
        "workers": 3,
        "concurrency": 4,
        "work": 0.3,
        "chaos": 40.0,
        "long": False,
        "bias": ONLY_WORK | {"undo": 0.55},
    },
    # Nearly all work is done by workers without a database, whose requests arrive twice. Nothing else goes wrong.
    "remote workers": {
        **PLAIN,
        "fail": 0.3,
        "wait": 0.4,
        "send": 1.0,
        "duplicate": 0.4,
        "steps": 4,
        "runs": 12,
        "workers": 1,
        "remote": 3,
        "concurrency": 4,
        "work": 4.0,
        "chaos": 40.0,
        "long": False,
        "bias": ONLY_WORK | {"exact": 0.0, "rules": 0.2},
    },
    # The live policy changes every few seconds, while steps open and are retried.
    "live policy": {
        **PLAIN,
        "fail": 0.4,
        "approve": 0.5,
        "steps": 5,
        "runs": 16,
        "workers": 3,
        "policies": 0.5,
        "staff": 0.3,
        "chaos": 40.0,
        "long": False,
        "bias": ONLY_WORK | {"gate": 0.1},
    },
    # Workers without a database run flows and their calls, and calls end while requests are under way.
    "flows of remote workers": {
        **PLAIN,
        "fail": 0.2,
        "slow": 0.4,
        "slow_at": "http",
        "duplicate": 0.2,
        "flows": 0.8,
        "letters": 0,
        "steps": 3,
        "runs": 8,
        "workers": 1,
        "remote": 4,
        "concurrency": 3,
        "work": 1.0,
        "chaos": 40.0,
        "long": False,
        "bias": ONLY_WORK | {"exact": 0.0},
    },
    # Processes come and go with two codes of every flow: neither fits the runs that the other has begun.
    "other code of flows": {
        **PLAIN,
        "kill": 0.6,
        "drain": 0.4,
        "fail": 0.2,
        "flows": 0.8,
        "rollouts": 0.5,
        "steps": 3,
        "runs": 10,
        "workers": 3,
        "concurrency": 4,
        "work": 1.0,
        "chaos": 40.0,
        "long": False,
        "bias": ONLY_WORK | {"exact": 0.0},
    },
    # Runs of flows fail and are cancelled, and people go on with them: from where they failed, and from a call.
    "flows again": {
        **PLAIN,
        "fail": 0.3,
        "cancel": 0.3,
        "kill": 0.2,
        "noise": 1.0,
        "flows": 0.9,
        "rollouts": 0.0,
        "steps": 2,
        "runs": 12,
        "workers": 2,
        "concurrency": 4,
        "work": 0.5,
        "chaos": 60.0,
        "long": False,
        "bias": ONLY_WORK | {"exact": 0.0, "rules": 0.0, "undo": 0.5, "again": 1.0, "patched": 1.0},
    },
    # Nobody may decide many of the gates, until an operator names other approvers.
    "nobody may decide": {
        **PLAIN,
        "shape": "fan",
        "steps": 4,
        "runs": 12,
        "workers": 2,
        "approve": 0.6,
        "reject": 0.1,
        "noise": 0.2,
        "chaos": 30.0,
        "long": False,
        "bias": ONLY_WORK | {"gate": 0.6, "hold": 0.4, "nobody": 0.7},
    },
    # Nearly every step counts under a limit, and claims, losses and changed rules meet under few keys.
    "full keys": {
        **PLAIN,
        "kill": 0.4,
        "drain": 0.3,
        "fail": 0.2,
        "limits": 0.9,
        "flows": 0.15,
        "rules": 0.6,
        "steps": 4,
        "runs": 16,
        "workers": 3,
        "concurrency": 4,
        "work": 1.0,
        "chaos": 40.0,
        "long": False,
        "bias": ONLY_WORK | {"exact": 0.2, "rules": 0.3, "grown": 0.3},
    },
    # Workers end while rules are yet to run, more often than steps may lose a lease; their runs go on without them.
    "lost while judged": {
        **PLAIN,
        "kill": 1.0,
        "latency": 0.3,
        "shape": "fan",
        "steps": 5,
        "runs": 12,
        "workers": 3,
        "concurrency": 4,
        "work": 0.3,
        "chaos": 40.0,
        "long": False,
        "bias": ONLY_WORK | {"exact": 0.0, "rules": 1.0, "patient": 0.0, "tolerated": 1.0},
    },
}
"""Themes of a few seeds more, each so blocking that hardly any other seed comes by."""

CORNERED = 0.04
"""Which share of the seeds goes to each of these corners, whatever they were about."""

DEAR_CORNERS: dict[str, dict[str, Any]] = {
    # A journal grows past 5,000 entries, message by message, before its run goes on.
    "long journal": {
        **PLAIN,
        "reply_lost": 0.01,
        "request_lost": 0.01,
        "restart": 0.1,
        "letters": 5400,
        "runs": 2,
        "workers": 2,
        "concurrency": 4,
        "latency": 0.0005,
        "slow": 0.0,
        "chaos": 20.0,
        "send": 0.0,
        "noise": 0.0,
        "reject": 0.0,
        "skew": 0.0,
        "long": False,
    },
}
"""The same for what takes seconds to play."""

DEARLY_CORNERED = 0.0005
"""Which share of the seeds goes to each of those."""


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    random = Random(f"scenario:{seed}")  # noqa: S311 - chance that must come out the same again
    chosen = random.sample(list(FAULTS), random.choice((0, 1, 1, 2, 2, 3, 4, 6, 8)))
    rates: dict[str, Any] = {name: FAULTS[name] * random.random() for name in chosen}
    rates |= {name: highest * random.random() if random.random() < 0.75 else 0.0 for name, highest in HABITS.items()}
    drawn: dict[str, Any] = dict(
        seed=seed,
        workers=random.randint(1, 4),
        latency=random.choice((0.0005, 0.005, 0.04)),
        slow_at=random.choice(STATEMENTS),
        hint_lost=random.choice((0.0, 0.3, 1.0)),
        tick=random.choice((0.0, 0.0, 0.001, 0.25)),
        alike=random.random() < 0.3,
        dialects=random.choice((0.0, 0.0, 0.25, 0.5)),
        long=random.random() < 0.04,
        **(_few(random) if random.random() < 0.25 else _many(random)),
        **rates,
    )
    return Scenario(
        **{
            **drawn,
            **_threads(seed),
            **_operator(seed),
            **_decider(seed),
            **_migrator(seed),
            **_pauser(seed),
            **_workflow_pauser(seed),
            **_staff(seed),
            **_parents(seed),
            **_flows(seed),
            **_planners(seed),
            **_continued(seed),
            **_limited(seed),
            **_remote(seed),
            **random.choice(THEMES),
            **_corner(seed),
        }
    )


def with_sinks(seed: int) -> Scenario:
    """A scenario of this seed whose runs emit events to sinks. The others have none, and are the same as ever."""
    return msgspec.structs.replace(draw(seed), sinks=1 + seed % 4, emit=0.7)


def _threads(seed: int) -> dict[str, Any]:
    """Drawn apart, like a corner."""
    random = Random(f"threads:{seed}")  # noqa: S311 - chance that must come out the same again
    return {"threads": random.choice((1, 1, 2))} if random.random() < 0.3 else {}


def _operator(seed: int) -> dict[str, Any]:
    """An operator sets runs aside and releases them. Drawn apart, like a corner."""
    random = Random(f"operator:{seed}")  # noqa: S311 - chance that must come out the same again
    return {"quarantine": random.random()} if random.random() < 0.25 else {}


def _pauser(seed: int) -> dict[str, Any]:
    """An operator pauses runs and resumes them. Drawn apart, like a corner."""
    random = Random(f"pauser:{seed}")  # noqa: S311 - chance that must come out the same again
    return {"pauses": random.random()} if random.random() < 0.3 else {}


def _workflow_pauser(seed: int) -> dict[str, Any]:
    """Workflows are paused and resumed. Drawn apart, like a corner."""
    random = Random(f"workflow pauser:{seed}")  # noqa: S311 - chance that must come out the same again
    return {"workflow_pauses": random.random()} if random.random() < 0.15 else {}


def _decider(seed: int) -> dict[str, Any]:
    """An operator decides about steps that are stuck. Drawn apart, like a corner."""
    random = Random(f"decider:{seed}")  # noqa: S311 - chance that must come out the same again
    return {"decisions": random.random()} if random.random() < 0.3 else {}


def _migrator(seed: int) -> dict[str, Any]:
    """An operator migrates runs to other versions. Drawn apart, like a corner."""
    random = Random(f"migrator:{seed}")  # noqa: S311 - chance that must come out the same again
    return {"migrations": random.random()} if random.random() < 0.25 else {}


def _staff(seed: int) -> dict[str, Any]:
    """Roles, keys, delegations and the live policy change. Drawn apart, like a corner."""
    random = Random(f"administrator:{seed}")  # noqa: S311 - chance that must come out the same again
    of_people, of_policies, rate = random.random() < 0.15, random.random() < 0.15, random.random()
    return ({"staff": rate} if of_people else {}) | ({"policies": 0.5 * rate} if of_policies else {})


def _parents(seed: int) -> dict[str, Any]:
    """Steps that start runs of other workflows. Drawn apart, like a corner."""
    random = Random(f"parents:{seed}")  # noqa: S311 - chance that must come out the same again
    return {"families": random.choice((0.2, 0.4, 0.7))} if random.random() < 0.2 else {}


def _flows(seed: int) -> dict[str, Any]:
    """Steps that are flows. Drawn apart, like a corner."""
    random = Random(f"flows:{seed}")  # noqa: S311 - chance that must come out the same again
    return {"flows": random.choice((0.2, 0.4, 0.7))} if random.random() < 0.2 else {}


def _planners(seed: int) -> dict[str, Any]:
    """Steps whose handlers add steps. Drawn apart, like a corner."""
    random = Random(f"planners:{seed}")  # noqa: S311 - chance that must come out the same again
    return {"planners": random.choice((0.2, 0.4, 0.7))} if random.random() < 0.2 else {}


def _continued(seed: int) -> dict[str, Any]:
    """Workflows that continue as new. Drawn apart, like a corner."""
    random = Random(f"continued:{seed}")  # noqa: S311 - chance that must come out the same again
    return {"continued": random.choice((0.2, 0.4))} if random.random() < 0.15 else {}


def _limited(seed: int) -> dict[str, Any]:
    """Steps that count under limits. Drawn apart, like a corner."""
    random = Random(f"limited:{seed}")  # noqa: S311 - chance that must come out the same again
    is_limited, share, rules = random.random() < 0.15, random.choice((0.3, 0.6, 1.0)), random.choice((0.0, 0.5, 1.0))
    return {"limits": share, "rules": rules} if is_limited else {}


def _remote(seed: int) -> dict[str, Any]:
    """Workers without a database. Drawn apart, like a corner."""
    random = Random(f"remote:{seed}")  # noqa: S311 - chance that must come out the same again
    return {"remote": random.randint(1, 3)} if random.random() < 0.15 else {}


def _corner(seed: int) -> dict[str, Any]:
    """Each is drawn by its own name, so that one more changes no seed but those that it takes."""
    shared = {**dict.fromkeys(DEAR_CORNERS, DEARLY_CORNERED), **dict.fromkeys(CORNERS, CORNERED)}
    for name, share in shared.items():
        if Random(f"{name}:{seed}").random() < share:  # noqa: S311 - chance that must come out the same again
            return DEAR_CORNERS.get(name) or CORNERS[name]
    return {}


def _few(random: Random) -> dict[str, Any]:
    """A few runs that take their time."""
    return {
        "runs": random.randint(1, 6),
        "concurrency": random.choice((1, 2, 4)),
        "steps": random.randint(2, 7),
        "chaos": random.choice((10.0, 20.0, 40.0)),
    }


def _many(random: Random) -> dict[str, Any]:
    """A crowd: workers are busy, and what they report and claim goes to the database in batches."""
    return {
        "runs": random.randint(20, 60),
        "concurrency": random.choice((2, 4, 8)),
        "steps": random.randint(1, 5),
        "chaos": random.choice((15.0, 30.0)),
        "work": random.choice((0.2, 0.5, 1.0)),
    }


def with_changes(scenario: Scenario, changes: dict[str, Any]) -> Scenario:
    """The same with some fields as given, as a replay command names them."""
    known = set(Scenario.__struct_fields__) - {"seed"}
    unknown = set(changes) - known
    if unknown:
        raise ValueError(f"a scenario has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(known))}")
    return msgspec.convert({**msgspec.to_builtins(scenario), **changes}, Scenario)
