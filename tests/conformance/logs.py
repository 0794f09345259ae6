"""Logs of real runs for the judge: stories played on the kernel, and the same stories retold with a lie in them.

A lie is told in the entries before they are sealed, so that every hash is right and only their meaning is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.kernel.driver import World, gate, sequence, wait, work

from stepkeep.kernel.definition import SECOND, Completion, OnExhausted, Retry, Rule
from stepkeep.kernel.machine.events import HoldChoice
from stepkeep.kernel.machine.journal import GENESIS, RUN_ENTITY, Entry, SealedEntry, open_entry, seal
from stepkeep.kernel.machine.outcomes import Completed, Released, Waiting
from stepkeep.kernel.machine.states import Category, OnFailure
from stepkeep.kernel.plan import Plan
from stepkeep.operations.logs.lines import PlanNames, Scribe, encode_line, unfold

CORRELATION = "order-4711"
RULES = (Rule(expression="true"),)


def success() -> World:
    """Work with rules, a gate, a wait whose message came early, a manual step and a final check."""
    world = World(
        *sequence(
            work("pack", rules=RULES),
            gate("sign"),
            wait("paid", "payment"),
            work("ship", completion=Completion.MANUAL),
        ),
        rules=RULES,
    )
    world.tell("payment")
    world.finish("pack")
    world.pass_time(1_234_567)
    world.approve("sign", comment='"ça va" \\o/ \u2028\t\x1f')
    world.finish("ship")
    world.complete("ship")
    world.finish("check:run")
    return world


def failure() -> World:
    """One step fails for good while another is in flight and a third is not begun."""
    world = World(work("a"), work("b"), work("c", "a"), work("d", on_failure=OnFailure.SKIP))
    world.fail("d", error="tolerated")
    world.claim("b")
    world.fail("a", error="no such account")
    world.pass_time(2 * SECOND)
    world.finish("b")
    return world


def held() -> World:
    """No attempt is left: retried by a person, then skipped by another."""
    world = World(*sequence(work("a", retry=Retry(max_attempts=1), on_exhausted=OnExhausted.HOLD), work("b")))
    world.fail("a", Category.TRANSIENT, "503")
    world.decide_hold("a", HoldChoice.RETRY, by="ann", reason="mended")
    world.fail("a", Category.TRANSIENT, "503")
    world.decide_hold("a", HoldChoice.SKIP, by="bea")
    world.finish("b")
    return world


def retry() -> World:
    """Failed, lost, released, woken: then done."""
    world = World(work("a", retry=Retry(max_attempts=4)), work("b", "a", rules=RULES))
    world.fail("a", Category.TRANSIENT, "503")
    world.later(SECOND, "a")
    world.lose("a")
    world.claim("a")
    world.report("a", Released())
    world.claim("a")
    world.report("a", Waiting(event="go", timeout=60 * SECOND))
    world.pass_time(7)
    world.tell("go")
    world.finish("a")
    world.claim("b")
    world.report("b", Completed())
    world.later(31 * SECOND, "b")
    world.finish("b")
    return world


def rollback() -> World:
    """Three steps are undone in reverse order of completion, one hook at the second try."""
    world = World(
        work("a", undo=True),
        work("b", undo=True),
        work("c", "a", undo=True),
        work("d", "b", "c"),
        on_failure=OnFailure.COMPENSATE,
        rules=RULES,
    )
    world.finish("b")
    world.finish("a")
    world.finish("c")
    world.finish("d")
    world.cancel(compensate=True, reason="changed my mind")
    world.finish("undo:c")
    world.fail("undo:a", Category.TRANSIENT, "try again")
    world.later(SECOND, "undo:a")
    world.finish("undo:a")
    world.finish("undo:b")
    return world


def cancel() -> World:
    """Cancelled while one step runs, one waits for people and one has not begun."""
    world = World(work("a"), gate("b"), work("c", "b"))
    world.claim("a")
    world.pass_time(SECOND)
    world.cancel(reason="no longer needed")
    return world


def unfinished() -> World:
    """A run that goes on: it waits for people."""
    world = World(*sequence(work("a"), gate("b"), work("c")))
    world.finish("a")
    return world


STORIES: dict[str, Callable[[], World]] = {
    story.__name__: story for story in (success, failure, held, retry, rollback, cancel, unfinished)
}


# -- from entries to lines -------------------------------------------------------------------------------------------
def entries_of(world: World) -> list[Entry]:
    return [open_entry(body) for body in world.bodies]


def sealed(entries: Sequence[Entry]) -> list[SealedEntry]:
    chain, head = [], GENESIS
    for entry in entries:
        chain.append(seal(entry, head))
        head = chain[-1].hash
    return chain


def written(entries: Sequence[Entry], plan: Plan) -> list[bytes]:
    """The log of these entries, its hashes and its closing line as an export would have them."""
    scribe = Scribe("run", entries[0].run_id, PlanNames(plan), CORRELATION)
    chain = sealed(entries)
    lines = [scribe.opening(entries[0].tenant, plan, entries[0].at)]
    lines += [scribe.line(move) for entry in chain for move in unfold(entry)]
    states = [hop.target for entry in entries for hop in entry.hops if hop.no == RUN_ENTITY]
    last = entries[-1]
    lines.append(scribe.head(last.tenant, last.seq, chain[-1].hash, states[-1] if states else "idle", last.at))
    return [encode_line(line) for line in lines]


def log_of(world: World) -> list[bytes]:
    assert sealed(entries_of(world))[-1].hash == world.run.head
    return written(entries_of(world), world.plan)
