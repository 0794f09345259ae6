"""Runs one seed from its scenario to its result: faults, then calm until every run has ended, then the verdict.

The same scenario always gives the same result, byte for byte: `digest` covers all journals, the heads of all rows and
the log of faults. Campaigns, the shrinker, the planted bugs and the tests call `run_seed`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random as global_random
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec

from stepkeep.kernel.definition import Definition
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.states import RUN_TERMINAL, WorkerState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations.continuation import going_on
from stepkeep.operations.definitions.publish import publish
from stepkeep.operations.limits.resources import set_pool
from stepkeep.operations.people import people, principals
from stepkeep.operations.pipeline import start, workers
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.remote import recorded_calls
from stepkeep.worker.remote import membership
from stepkeep_lab.simulation.added import with_then
from stepkeep_lab.simulation.audit import Auditor
from stepkeep_lab.simulation.definitions import correspondence, draw_definition, maybe
from stepkeep_lab.simulation.documents import DRAWERS, draw_in_dialect
from stepkeep_lab.simulation.families import is_anything_left, with_children
from stepkeep_lab.simulation.faults import Fault
from stepkeep_lab.simulation.flows import with_flows
from stepkeep_lab.simulation.handlers import make_registry
from stepkeep_lab.simulation.limited import change_rules, with_limits
from stepkeep_lab.simulation.loop import Process, Stalled
from stepkeep_lab.simulation.migrated import other_versions
from stepkeep_lab.simulation.people import People
from stepkeep_lab.simulation.processes import Server, Workplace
from stepkeep_lab.simulation.receivers import with_hooks
from stepkeep_lab.simulation.scenario import Scenario
from stepkeep_lab.simulation.shared_resources import POOLS
from stepkeep_lab.simulation.staff import Staff
from stepkeep_lab.simulation.stage import TENANT, Stage
from stepkeep_lab.simulation.store import ModelStore
from stepkeep_lab.simulation.successors import with_successors
from stepkeep_lab.simulation.verdict import Verdict

RUNS_OF_EACH = 2
"""How many runs there are of each definition."""

CALM = 1500.0
"""How long (virtual seconds) runs may take to end once nothing goes wrong any more."""

HEARD_WITHIN = 15.0
"""How soon a worker that is well again must be known to be."""

MOST_STEPS = 600_000
"""How many callbacks a seed may take; more means that something spins."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a scenario."""

    scenario: Scenario
    violations: tuple[str, ...]
    digest: str
    runs: int
    steps: int
    written_in: Counter[str]
    ended: Counter[str]
    faults: Counter[str]
    refusals: Counter[str]
    met: Counter[str]
    rows: frozenset[tuple[str, str | None, str]]
    effects: int
    commits: int
    longest: int
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.violations


After = Callable[[Transactor, Sequence[str]], Awaitable[None]]
"""Called with the run ids at the end of a seed, before the verdict."""


def run_seed(
    scenario: Scenario, *, after: After | None = None, observe: Callable[[Stage], None] = lambda stage: None
) -> Result:
    """Play a scenario and tell what came of it; `observe` is given the stage when all is over."""
    with _determined(scenario.seed), _complaints() as complaints:
        stage = Stage(scenario)
        drama = _Simulation(stage, after)
        try:
            stage.loop.run_until_complete(drama.main())
        except Stalled as problem:
            stage.ledger.violation(f"I5: {problem}")
        except Overrun:
            stage.ledger.violation("I5: something spins without end")
        finally:
            stage.loop.close()
        for said in (*complaints, *stage.loop.unheard):
            stage.ledger.violation(f"a process complained: {said}")
        observe(stage)
        return drama.result()


SENT_BY_KEY = 0.35
"""The share of seeds in which messages are sent by business key."""


class Overrun(Exception):
    """The seed took more callbacks than any sensible one."""


class _Simulation:
    """The acts of one seed."""

    def __init__(self, stage: Stage, after: After | None) -> None:
        self._stage, self._scenario, self._after = stage, stage.scenario, after
        self._plans: dict[int, Plan] = {}
        self._auditor = Auditor(stage, lambda run: self._plans[run.definition_id])

    async def main(self) -> None:
        stage, scenario = self._stage, self._scenario
        plans = await self._publish()
        registry = make_registry(stage)
        server = Server(stage)
        people = People(stage, server, plans)
        people.known = self._plans
        other = make_registry(stage, other_code=True)
        places = [Workplace(stage, registry, place, other=other) for place in range(scenario.workers)]
        places += await self._remote_places(server)
        receivers = stage.receivers
        if receivers is not None:
            await receivers.add(Transactor(ModelStore(stage.database), monotonic=stage.loop.time))
        for place in places:
            place.open()
        work = [
            people.start_all(),
            people.meddle(),
            people.set_aside(),
            people.pause_runs(),
            people.pause_workflows(),
            people.decide_stuck(),
            people.migrate_runs(),
            self._harm(places, server),
        ]
        work.append(Staff(stage, server, people.hurry).change())
        work.append(change_rules(stage, server))
        if scenario.letters:
            work.append(people.write_letters(scenario.letters))
        if maybe(stage.random("messages by key"), SENT_BY_KEY):
            work.append(people.write_by_key())
        if receivers is not None:
            work.append(receivers.operate())
        acts = [asyncio.ensure_future(act) for act in work]
        await asyncio.sleep(scenario.chaos)
        stage.chaos = False
        await asyncio.gather(*acts)
        await self._until_all_ended(people)
        if receivers is not None:
            await receivers.until_settled()
        if stage.ledger.violations:
            # What has gone wrong may never end, and what would be said of the rest says nothing new.
            return
        await self._go_home(places)
        if self._after is not None:
            transactor = Transactor(ModelStore(stage.database), monotonic=stage.loop.time)
            await self._after(transactor, [run for _, run in stage.database.tables.runs])
        await Verdict(stage, self._plans).give()
        if receivers is not None:
            await receivers.check()

    async def _remote_places(self, server: Server) -> list[Workplace]:
        """Workers that reach the service alone. Their code is loaded only where there are any."""
        stage, scenario = self._stage, self._scenario
        if not scenario.remote:
            return []
        from stepkeep_lab.simulation.remote import give_key, remote_parts

        key, registry = await give_key(stage), make_registry(stage, remote=True)

        def parts(process: Process) -> dict[str, Any]:
            return remote_parts(stage, server, process, key)

        return [Workplace(stage, registry, scenario.workers + place, parts) for place in range(scenario.remote)]

    async def _publish(self) -> list[Plan]:
        transactor, scenario = (
            Transactor(ModelStore(self._stage.database), monotonic=self._stage.loop.time),
            self._scenario,
        )
        plans: list[Plan] = []
        for resource, most in POOLS.items():
            caller = Caller(TENANT, "operator")
            await set_pool(transactor.store, resource, most, caller=caller)
        for place in range(1 if scenario.alike else (scenario.runs + 1) // RUNS_OF_EACH):
            drawn = self._draw(self._stage.random(f"definition:{place}"), f"w{place}")
            if scenario.letters and place == 0:
                drawn = correspondence(drawn.name)
            if scenario.families and not scenario.letters:
                chance = self._stage.random(f"families:{place}")
                drawn = with_children(drawn, plans, chance, scenario.families)
            if scenario.flows and not scenario.letters:
                children = plans if scenario.families else ()
                drawn = with_flows(drawn, self._stage.random(f"flows:{place}"), scenario.flows, children)
            if scenario.planners and not scenario.letters:
                drawn = with_then(drawn, self._stage.random(f"planners:{place}"), scenario.planners)
            if scenario.continued and not scenario.letters:
                chance = self._stage.random(f"continued:{place}")
                drawn = with_successors(drawn, chance, scenario.continued, plans if scenario.families else ())
            if scenario.limits:
                drawn = with_limits(drawn, self._stage.random(f"limits:{place}"), scenario.limits)
            if scenario.sinks:
                drawn = with_hooks(drawn)
            plan = await publish(transactor, drawn, caller=Caller(TENANT, "ann"))
            self._plans[plan.definition_id] = plan
            plans.append(plan)
            chance = self._stage.random(f"versions:{place}")
            for other in other_versions(drawn, chance) if scenario.migrations else ():
                hooked = with_hooks(other) if scenario.sinks else other
                version = await publish(transactor, hooked, caller=Caller(TENANT, "ann"))
                self._plans[version.definition_id] = version
        return [plans[place % len(plans)] for place in range(scenario.runs)]

    def _draw(self, random: Random, name: str) -> Definition:
        scenario = self._scenario
        if random.random() < scenario.dialects:
            return draw_in_dialect(random, random.choice(tuple(DRAWERS)), name, scenario.steps)
        return draw_definition(random, name, scenario.steps, shape=scenario.shape, bias=scenario.bias)

    async def _harm(self, places: list[Workplace], server: Server) -> None:
        """What happens to processes and the database by itself, second by second."""
        stage, scenario, random = self._stage, self._scenario, self._stage.random("harm")
        while stage.chaos:
            await asyncio.sleep(random.random())
            if random.random() < scenario.restart / 2:
                stage.restart_database(random.choice((0.05, 1.0, 6.0)) * random.random())
            place = random.choice(places)
            if random.random() < scenario.kill / 2 and place.process is not None:
                stage.log.note(Fault.KILL, place.process.name)
                stage.kill(place.process)
            if random.random() < scenario.drain / 2 and place.worker is not None:
                stage.log.note(Fault.DRAIN, "")
                place.drain()
            if random.random() < scenario.serverkill / 2 and server.process is not None:
                stage.log.note(Fault.SERVER_KILL, server.process.name)
                stage.kill(server.process)

    async def _until_all_ended(self, people: People) -> None:
        stage = self._stage
        runs = stage.database.tables.runs
        until = stage.loop.time() + CALM
        while stage.loop.time() < until and not stage.ledger.violations:
            await asyncio.sleep(1.0)
            if stage.loop.steps > MOST_STEPS:
                raise Overrun
            people.serve_fairly()
            ended = all(run.state in RUN_TERMINAL for run in runs.values())
            ended = ended and not is_anything_left(stage.database.tables)
            if ended and stage.is_quiet and not people.busy and not people.starting:
                break
        if self._scenario.long and not stage.ledger.violations:
            # Long enough for silent workers to be missed, given up, and heard again.
            await asyncio.sleep(200.0)

    async def _go_home(self, places: list[Workplace]) -> None:
        """Everybody stops in good order, and does so in time."""
        stage = self._stage
        for place in places:
            place.closed = True
            if stage.loop.time() > stage.trouble_at + HEARD_WITHIN:
                self._must_be_known(place)
        for _ in range(120):
            for place in places:
                place.drain()
            if all(place.process is None or not place.process.alive for place in places):
                return
            await asyncio.sleep(1.0)
        stage.ledger.violation("a worker that was asked to stop does not end")

    def _must_be_known(self, place: Workplace) -> None:
        """Who lives and is heard is not taken for lost."""
        rows = {row.id: row.state for row in self._stage.database.tables.workers.values()}
        known = None if place.worker is None else rows.get(place.worker.id or "")
        if known in (WorkerState.UNRESPONSIVE, WorkerState.SHUTDOWN):
            self._stage.ledger.violation(f"a worker lives, and is said to be {known}")

    # -- the result --------------------------------------------------------------------------------------------------
    def result(self) -> Result:
        stage, tables = self._stage, self._stage.database.tables
        rows = set(self._auditor.met)
        for entries in tables.worker_journal.values():
            rows |= {("worker", hop.source, hop.trigger) for entry in entries for hop in open_entry(entry.body).hops}
        locks, met = stage.database.locks, stage.ledger.met
        met.update({"a wait for a lock": locks.waits, "a deadlock": locks.deadlocks, "a lock timeout": locks.timeouts})
        return Result(
            scenario=self._scenario,
            violations=tuple(dict.fromkeys(stage.ledger.violations)),
            digest=self._digest(),
            runs=len(tables.runs),
            steps=sum(map(len, tables.steps.values())),
            written_in=Counter(self._plans[run.definition_id].definition.dialect for run in tables.runs.values()),
            ended=Counter(str(run.state) for run in tables.runs.values()),
            faults=stage.log.counts,
            refusals=stage.ledger.refusals,
            met=+met,
            rows=frozenset(rows),
            effects=len(stage.ledger.effects),
            commits=self._auditor.commits,
            longest=max((run.seq for run in tables.runs.values()), default=0),
            seconds=stage.loop.time(),
        )

    def _digest(self) -> str:
        tables, seal = self._stage.database.tables, hashlib.sha256()
        for journal in (*tables.journal.values(), *(dict(enumerate(one)) for one in tables.worker_journal.values())):
            for entry in journal.values():
                seal.update(entry.hash + entry.body)
        for line in (*self._stage.log.lines, *map(str, self._stage.ledger.effects), f"{self._stage.loop.time():.6f}"):
            seal.update(line.encode())
        return seal.hexdigest()


@contextmanager
def _determined(seed: int) -> Iterator[None]:
    """Nothing random that is not drawn from the seed, for as long as this lasts."""
    ids = Counter[str]()

    def next_id() -> str:
        ids["run"] += 1
        return f"0190{ids['run']:04x}-0000-7000-8000-000000000000"

    def worker_id(app: str) -> str:
        ids[app] += 1
        return f"{app}:{ids[app]}"

    def next_hex(kind: str) -> str:
        ids[kind] += 1
        return f"{kind}{ids[kind]:012x}"

    kept = global_random.getstate()
    global_random.seed(f"{seed}:global")
    with ExitStack() as stack:
        stack.callback(global_random.setstate, kept)
        stack.enter_context(patch.object(start, "uuid7", next_id))
        stack.enter_context(patch.object(going_on, "uuid7", next_id))
        stack.enter_context(patch.object(people, "uuid7", next_id))
        stack.enter_context(patch.object(workers, "new_id", worker_id))
        stack.enter_context(patch.object(principals, "uuid7", lambda: next_hex("0ca1")))
        stack.enter_context(patch.object(secrets, "token_hex", lambda _: next_hex("0cee")))
        stack.enter_context(patch.object(secrets, "token_urlsafe", lambda _: f"{next_hex('5ec2e7'):x<43}"))
        stack.enter_context(patch.object(membership, "os", SimpleNamespace(getpid=lambda: 1)))
        stack.enter_context(patch.object(recorded_calls, "PAGE_CALLS", 2))
        stack.enter_context(patch.object(membership, "socket", SimpleNamespace(gethostname=lambda: "remote")))
        yield


class _Complaints(logging.Handler):
    """Errors that a worker logs and survives are defects all the same."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[1] if record.exc_info else None
        self.said.append(f"{record.getMessage()}: {type(problem).__name__}: {problem}")


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """Listen to what the engine logs as an error; what handlers log is of no interest here."""
    handler = _Complaints()
    engine, handlers = logging.getLogger("stepkeep"), logging.getLogger("stepkeep.handler")
    with ExitStack() as stack:
        for logger, level in ((engine, engine.level), (handlers, handlers.level)):
            stack.callback(logger.setLevel, level)
        for setting, value in (("propagate", False), ("handlers", [handler])):
            stack.enter_context(patch.object(engine, setting, value))
        engine.setLevel(logging.ERROR)
        handlers.setLevel(logging.CRITICAL + 1)
        yield handler.said
