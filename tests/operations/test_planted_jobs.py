"""Jobs and quotas on the model store, with drawn faults at every statement; and planted bugs, which it must find.

Several processes, virtual time. One seed gives one history. What must hold is checked from the rows alone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from stepkeep.kernel.errors import ConnectionLost, QuotaExceeded, StoreError, StoreUnavailable
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.continuation import jobs
from stepkeep.operations.continuation.jobs import JobSweep
from stepkeep.operations.people import quotas
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.rows import JobAction, JobState, RunOutcome
from stepkeep_lab.simulation.database import Database, Session
from stepkeep_lab.simulation.mutation import Edit, Mutant, planted
from stepkeep_lab.simulation.store import ModelStore, PlainWire
from tests.suites import in_proof
from tests.workbench import TENANT, Bench, chain

BEGIN = 1_900_000_000_000_000
SECOND = 1_000_000
BY_ANN, BY_KEY = Caller(TENANT, "ann"), Caller(TENANT, "ann", key="k-1")
GATED = chain("gated", 1)


class FaultyWire(PlainWire):
    """Loses requests and answers, and lets time pass: the process on this end may be as good as killed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_calm = True

    async def ask(self, statement: str, work: Callable[[], Any], session: Session | None = None) -> Any:
        self._trouble(StoreUnavailable, f"{statement} was not sent")
        answer = await super().ask(statement, work, session)
        self._trouble(ConnectionLost, f"the answer to {statement} was lost")
        return answer

    async def wait(self, statement: str, work: Callable[[], Any], session: Session) -> Any:
        self._trouble(StoreUnavailable, f"{statement} was not sent")
        return await super().wait(statement, work, session)

    def _trouble(self, kind: type[StoreError], said: str) -> None:
        if self.is_calm:
            return
        if self._world.chance.random() < 0.03:
            self._world.now += self._world.chance.choice((1, 10, 40)) * SECOND
        if self._world.chance.random() < 0.04:
            raise kind(said)


class World:
    """One database and three processes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = BEGIN
        self.database = Database(lambda: self.now)
        self.wires = [FaultyWire(self) for _ in range(3)]
        self.benches = [Bench(Transactor(ModelStore(self.database, wire))) for wire in self.wires]
        self.findings: list[str] = []

    @property
    def calm(self) -> Bench:
        return self.benches[0]

    def be_calm(self, is_calm: bool) -> None:
        for wire in self.wires:
            wire.is_calm = is_calm

    def expect(self, holds: object, otherwise: str) -> None:
        if not holds:
            self.findings.append(otherwise)


class JobHistory(World):
    """Jobs that three workers carry out, and one that is stopped."""

    is_stopped = False

    async def live(self) -> list[str]:
        plan = await self.calm.publish(GATED)
        runs = [(await self.calm.begin(plan)).run_id for _ in range(13)]
        cancelled, again, stopped = runs[:4], runs[4:8], runs[8:]
        for run in (*again, *stopped):
            await self.calm.cancel(run)
        wanted = [
            (JobAction.CANCEL, cancelled, {"compensate": False, "reason": "twice"}),
            (JobAction.RERUN, again, {}),
            (JobAction.RERUN, stopped, {}),
        ]
        made = [await self._add(action, named, options) for action, named, options in wanted]
        recorded: dict[Any, Any] = {}
        for turn in range(6):
            self.be_calm(False)
            sweeps = [self._sweep(number) for number in range(3)]
            if turn == 0:
                sweeps.append(self._stop(made[2], after=self.chance.randrange(120)))
            done = await asyncio.gather(*sweeps, return_exceptions=True)
            assert all(isinstance(one, int | StoreError) for one in done), done
            self.be_calm(True)
            self._check_record(recorded)
            self.now += self.chance.choice((1, 31)) * SECOND
        await self._stop(made[2])
        for _ in range(8):
            self.now += jobs.LEASE_US + 1
            await self._sweep(0)
        self._check_record(recorded)
        self._check(made, cancelled, again, stopped)
        return self.findings

    async def _add(self, action: JobAction, runs: list[str], options: dict[str, Any]) -> str:
        told = await jobs.add_job(
            self.calm.transactor,
            action,
            sorted(runs),
            {"where": {}, **options},
            caller=BY_ANN,
            idempotency_key=None,
            digest=b"",
        )
        return str(told["job"])

    async def _sweep(self, number: int) -> int:
        bench = self.benches[number]
        return await JobSweep(bench.transactor, bench.starter).sweep(f"w-{number}")

    async def _stop(self, job: str, after: int = 0) -> int:
        """Stop a job, after the others have had so many turns."""
        for _ in range(after):
            await asyncio.sleep(0)
        self.is_stopped |= await self.calm.store.jobs.stop(TENANT, job)
        return 0

    def _check_record(self, recorded: dict[Any, Any]) -> None:
        """What is recorded stays."""
        rows = self.database.tables.jobs
        for key, row in rows.runs.items():
            if row.state is not RunOutcome.WAITING:
                self.expect(recorded.setdefault(key, row) == row, f"the record of {key[2]} has changed")
        for job, there in rows.jobs.items():
            if there.state is not JobState.RUNNING:
                end = (there.state, there.ended_at)
                self.expect(recorded.setdefault(job, end) == end, f"the job {job[1]} has ended twice")

    def _check(self, made: list[str], cancelled: list[str], again: list[str], stopped: list[str]) -> None:
        rows, tables = self.database.tables.jobs, self.database.tables
        states = [rows.jobs[TENANT, job].state for job in made]
        self.expect(states[:2] == [JobState.DONE, JobState.DONE], f"the jobs are {states}")
        self.expect(not self.is_stopped or states[2] is JobState.STOPPED, "a job that was stopped goes on")
        self.expect(states[2] is not JobState.RUNNING, "a job has no end")
        for job, runs in zip(made[:2], (cancelled, again), strict=True):
            for run in runs:
                found = rows.runs[TENANT, job, run]
                self.expect(found.state is RunOutcome.DONE, f"{run} is {found.state}: {found.detail}")
        for run in cancelled:
            self.expect(tables.runs[TENANT, run].state is RunState.CANCELLED, f"{run} goes on")
        repeats: dict[str, list[str]] = {}
        for (_, run), details in tables.details.items():
            if details.rerun_of is not None:
                repeats.setdefault(details.rerun_of, []).append(run)
        for run in again:
            told = rows.runs[TENANT, made[1], run].new_run_id
            self.expect(repeats.get(run) == [told], f"{run} was run again by {repeats.get(run)}, and {told} is told")
        for run in stopped:
            self.expect(len(repeats.get(run, ())) <= 1, f"{run} was run again by {repeats.get(run)}")


class QuotaHistory(World):
    """Starts of three processes with one key, whose quota is three unfinished runs."""

    MOST = 3

    async def live(self) -> list[str]:
        plan = await self.calm.publish(GATED)
        for bench in self.benches:
            bench.starter.quotas.default = quotas.Quotas(max_concurrent_runs=self.MOST)
        for turn in range(8):
            self.be_calm(False)
            starts = [
                bench.begin(plan, caller=BY_KEY, idempotency_key=f"{turn}-{number % 4}")
                for number, bench in enumerate(self.benches * 2)
            ]
            done = await asyncio.gather(*starts, return_exceptions=True)
            unknown = [one for one in done if isinstance(one, BaseException)]
            assert all(isinstance(one, QuotaExceeded | StoreError) for one in unknown), unknown
            self.be_calm(True)
            self.expect(len(self._live()) <= self.MOST, f"{len(self._live())} runs are not finished")
            await self._replay(plan, turn)
            for run in self._live()[: self.chance.randrange(4)]:
                await self.calm.cancel(run)
        await self._room(plan)
        return self.findings

    def _live(self) -> list[str]:
        return sorted(run.id for run in self.database.tables.runs.values() if run.state not in RUN_TERMINAL)

    async def _replay(self, plan: Any, turn: int) -> None:
        """A start with a key that has made a run returns that run, and takes no place."""
        places = dict(self.database.tables.people.quotas)
        try:
            started = await self.calm.begin(plan, caller=BY_KEY, idempotency_key=f"{turn}-0")
        except QuotaExceeded:
            return
        if not started.created:
            left = {place for place in self.database.tables.people.quotas if place not in places}
            self.expect(not left, "a replay keeps a place")

    async def _room(self, plan: Any) -> None:
        """Places of starts that were cut off are free again after a while, and no others."""
        for run in self._live():
            await self.calm.cancel(run)
        self.now += quotas.PATIENCE + 1
        for number in range(self.MOST):
            try:
                await self.calm.begin(plan, caller=BY_KEY, idempotency_key=f"last-{number}")
            except QuotaExceeded:
                self.findings.append(f"only {number} places are free")
        try:
            await self.calm.begin(plan, caller=BY_KEY, idempotency_key="one-too-many")
            self.findings.append("there is one place too many")
        except QuotaExceeded:
            self.expect(len(self._live()) == self.MOST, "a place is free, and a start is refused")


KINDS: dict[str, type[JobHistory] | type[QuotaHistory]] = {"jobs": JobHistory, "quotas": QuotaHistory}


def run_seed(kind: str, seed: int) -> list[str]:
    return asyncio.run(KINDS[kind](seed).live())


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "BATCH", 2)
    monkeypatch.setattr(jobs, "BATCHES", 2)


@pytest.mark.parametrize("seeds", [15, in_proof(1500)])
@pytest.mark.parametrize("kind", KINDS)
def test_processes_with_faults_keep_every_promise(kind: str, seeds: int) -> None:
    assert {seed: found for seed in range(seeds) if (found := run_seed(kind, seed))} == {}


def _bug(name: str, what: str, where: str, old: str, new: str) -> Mutant:
    return Mutant(name, what, (Edit(where, old, new),))


BUGS: tuple[tuple[str, Mutant], ...] = (
    (
        "jobs",
        _bug(
            "rerun-twice",
            "a batch that is done again runs its runs again, too",
            "operations.continuation.jobs:JobSweep._rerun",
            'key = f"job:{job.id}:{row.run_id}"',
            "key = None",
        ),
    ),
    (
        "jobs",
        _bug(
            "own-cancel-forgotten",
            "a job does not know its own cancel after its batch was cut off",
            "operations.continuation.jobs:JobSweep._cancel",
            '(found.run.error or "").endswith(mark)',
            "False",
        ),
    ),
    (
        "jobs",
        _bug(
            "ends-early",
            "a job ends after its first batch",
            "operations.continuation.jobs:JobSweep.carry_out",
            "is_last = len(waiting) < BATCH",
            "is_last = len(waiting) <= BATCH",
        ),
    ),
    (
        "jobs",
        _bug(
            "away-is-refused",
            "a store that is away is recorded as the refusal of a run",
            "operations.continuation.jobs:JobSweep._act",
            "except StoreError:",
            "except ZeroDivisionError:",
        ),
    ),
    (
        "jobs",
        _bug(
            "lease-kept",
            "a job that is given back stays leased for an hour",
            "operations.continuation.jobs:JobSweep.carry_out",
            "lease = LEASE_US if turn < batches - 1 else 0",
            "lease = 3_600_000_000",
        ),
    ),
    (
        "jobs",
        _bug(
            "stopped-goes-on",
            "the report of a worker is taken although the job was stopped",
            "simulation.job_tables:ModelJobs.report",
            "there is None or there.seq != job.seq or there.state is not JobState.RUNNING",
            "there is None",
        ),
    ),
    (
        "quotas",
        _bug(
            "lost-answer-frees",
            "a start whose answer was lost gives its place back, although there is a run",
            "operations.people.quotas:QuotaKeeper.reserve",
            "made.append(run_id)  # it may have been created: the next start looks",
            "pass",
        ),
    ),
    (
        "quotas",
        _bug(
            "away-frees",
            "a start whose answer was lost, and after which the store is away, gives its place back",
            "operations.pipeline.start:Starter._start_together",
            "if again:",
            "if again and False:",
        ),
    ),
    (
        "quotas",
        _bug(
            "replay-keeps-place",
            "a start that returns an earlier run keeps the place that it took",
            "operations.people.quotas:QuotaKeeper.reserve",
            "if scopes and made != [run_id]:",
            "if scopes and not made:",
        ),
    ),
    (
        "quotas",
        _bug(
            "one-more",
            "a quota allows one run more",
            "simulation.people_tables:ModelQuotas.take",
            ">= most:",
            "> most:",
        ),
    ),
    (
        "quotas",
        _bug(
            "places-forever",
            "the place of a start that was cut off is never free again",
            "simulation.people_tables:ModelQuotas.take",
            "live is False or (live is None and self._places[place] < now - patience)",
            "live is False",
        ),
    ),
)
MOST_SEEDS = 300


@pytest.mark.parametrize(("kind", "bug"), BUGS, ids=lambda one: one.name if isinstance(one, Mutant) else one)
def test_planted_bugs_are_found(kind: str, bug: Mutant) -> None:
    with planted(bug):
        assert any(run_seed(kind, seed) for seed in range(MOST_SEEDS)), f"{bug.name}: {bug.what}"
