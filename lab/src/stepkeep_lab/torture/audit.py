"""The audit after the faults: compares the database with what was acknowledged and what really happened.

It only reads: rows, journals, the ledger and the tally. Each finding is a sentence; none may remain. The invariants of
rows and journal are those of the simulation; the judge verifies the exported logs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

import msgspec

from stepkeep.conformance.verify import verify_lines
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.rows import Attempt, Run, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, AttemptState, Category, RunState, StepState
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.logs.log import canonical_machines, export_run, export_worker
from stepkeep.operations.pipeline.plans import plan_of
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.records import RunFilter, RunRecord
from stepkeep_lab.invariants.journal import fold_of
from stepkeep_lab.invariants.rows import check_rows
from stepkeep_lab.invariants.violation import Violation
from stepkeep_lab.torture.ledger import Effect
from stepkeep_lab.torture.process import TENANT

MOST = 20
AT_ONCE = 4


class Produced(msgspec.Struct, frozen=True):
    """What a handler of the torture returned: the name of its effect."""

    key: str = ""
    nonce: str = ""


class Expected(msgspec.Struct, frozen=True):
    """A run that was acknowledged, how it ends, and after how many effects."""

    run_id: str
    ending: RunState
    effects: int


class Audit:
    """One reckoning. `findings` is what is wrong, `counts` what there was."""

    def __init__(self, transactor: Transactor, effects: Iterable[Effect]) -> None:
        self._transactor, self._store = transactor, transactor.store
        self._effects: dict[str, list[Effect]] = {}
        for effect in effects:
            self._effects.setdefault(effect.key.split(":", 1)[0], []).append(effect)
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []

    def _must(self, holds: bool, said: str) -> None:
        if not holds:
            self.counts["findings"] += 1
            if len(self.findings) < MOST:
                self.findings.append(said)

    async def run(self, expected: dict[str, Expected], *, keys: int) -> None:
        """Check everything. `expected` is by run id; `keys` is how many different keys were asked for."""
        records = await self._all_runs()
        found = {record.run.id: record for record in records}
        self.counts["runs"] = len(records)
        lost = [run_id for run_id in expected if run_id not in found]
        self.counts["lost"] = len(lost)
        self._must(not lost, f"{len(lost)} acknowledged runs are gone, such as {lost[:3]}")
        self._must(len(records) == keys, f"{keys} keys made {len(records)} runs")
        stuck = await self._store.stuck_runs()
        unfinished = [record.run.id for record in records if record.run.state not in RUN_TERMINAL]
        self.counts["stuck"] = len(set(unfinished) | {run_id for _, run_id in stuck})
        self._must(not stuck, f"stuck: {stuck[:3]}")
        self._must(not unfinished, f"{len(unfinished)} runs never ended, such as {unfinished[:3]}")
        for begin in range(0, len(records), AT_ONCE):
            some = records[begin : begin + AT_ONCE]
            await asyncio.gather(*(self._run(record, expected.get(record.run.id)) for record in some))
        await self._workers()

    async def _all_runs(self) -> list[RunRecord]:
        records: list[RunRecord] = []
        page = RunFilter(tenant=TENANT, limit=200)
        while some := await self._store.list_runs(page):
            records += some
            page = msgspec.structs.replace(page, before=some[-1].run.id)
        return records

    # -- one run -----------------------------------------------------------------------------------------------------
    async def _run(self, record: RunRecord, expected: Expected | None) -> None:
        run = record.run
        lines = [line async for line in export_run(self._transactor, run.id, tenant=TENANT)]
        self._judge(run.id, [encode_line(line) for line in lines])
        steps = await self._store.read_steps(TENANT, run.id)
        attempts = await self._store.read_attempts(TENANT, run.id)
        self.counts[f"ended {run.state}"] += 1
        await self._invariants(run, steps, attempts)
        self._endings(record, steps, expected)
        for step in steps:
            self._step(step, [attempt for attempt in attempts if attempt.no == step.no])
        self._outcomes(run.id, steps, attempts, expected)

    def _judge(self, owner: str, lines: list[bytes]) -> None:
        report = verify_lines(lines, canonical_machines())
        self.counts["journal lines judged"] += len(lines)
        said = report.findings[0].message if report.findings else ""
        self._must(not report.findings, f"the judge finds fault with the journal of {owner}: {said}")

    async def _invariants(self, run: Run, steps: list[Step], attempts: list[Attempt]) -> None:
        """The rows keep the invariants, and the journal folds to them."""
        plan = await plan_of(self._transactor, TENANT, run.id)
        sealed = await self._store.read_journal(TENANT, run.id, limit=run.seq)
        messages = await self._store.read_messages(TENANT, run.id)
        rows = {step.no: step for step in steps}
        for undo in (step for step in steps if plan.is_undo(step.no)):
            # Every undo here succeeds when its handler is asked: only lost workers could give it up.
            self.counts["undos"] += 1
            self.counts["undos with a lost worker"] += undo.losses > 0
            self._must(undo.state is not StepState.FAILED, f"{undo.no} of run {run.id} was given up: {undo.error}")
        try:
            fold = fold_of(plan, (open_entry(entry.body) for entry in sealed))
            fold.check(run, rows, {(attempt.no, attempt.fence) for attempt in attempts})
            check_rows(plan, run, rows, [message.name for message in messages if message.consumed_by is None])
        except Violation as found:
            self._must(False, f"run {run.id}: {found}")

    def _endings(self, record: RunRecord, steps: list[Step], expected: Expected | None) -> None:
        run = record.run
        poisoned = run.category is Category.POISON or any(step.category is Category.POISON for step in steps)
        self.counts["poisoned"] += poisoned
        if expected is not None and not poisoned:
            self._must(run.state is expected.ending, f"run {run.id} ended {run.state}, not {expected.ending}")

    def _step(self, step: Step, attempts: list[Attempt]) -> None:
        title = f"step {step.no} of run {step.run_id}"
        states = Counter(attempt.state for attempt in attempts)
        for state, count in states.items():
            self.counts[f"attempts {state}"] += count
        doubled = max(0, states[AttemptState.SUCCEEDED] - 1)
        self.counts["doubly committed"] += doubled
        self._must(not doubled, f"{title} has {states[AttemptState.SUCCEEDED]} accepted successes")
        self._must(step.losses == states[AttemptState.LOST], f"{title} counts {step.losses} losses")
        if step.state is StepState.SUCCEEDED:
            winner = [attempt.fence for attempt in attempts if attempt.state is AttemptState.SUCCEEDED]
            self._must(winner == [step.fence], f"{title} was settled by claim {winner}, not by its last, {step.fence}")

    def _outcomes(self, run_id: str, steps: list[Step], attempts: list[Attempt], expected: Expected | None) -> None:
        """What was accepted really happened, and each effect was accepted at most once."""
        effects = self._effects.get(run_id, [])
        happened = {(effect.key, effect.nonce) for effect in effects}
        accepted: list[tuple[str, str]] = []
        for attempt in attempts:
            if attempt.state is AttemptState.SUCCEEDED and attempt.output is not None:
                produced = msgspec.json.decode(attempt.output, type=Produced)
                accepted.append((produced.key, produced.nonce))
        self._must(set(accepted) <= happened, f"run {run_id} accepted what never happened: {set(accepted) - happened}")
        self._must(len(set(accepted)) == len(accepted), f"run {run_id} accepted one effect twice")
        keys = Counter(effect.key for effect in effects)
        self.counts["effects"] += len(effects)
        self.counts["duplicate effects"] += len(effects) - len(keys)
        claims = sum(step.fence for step in steps)
        self._must(len(effects) <= claims, f"run {run_id} had {len(effects)} effects for {claims} claims")
        if expected is not None and not any(step.category is Category.POISON for step in steps):
            self._must(len(keys) == expected.effects, f"run {run_id}: {len(keys)} of {expected.effects} effects")

    # -- workers -----------------------------------------------------------------------------------------------------
    async def _workers(self) -> None:
        for worker in await self._store.list_workers(TENANT):
            self.counts["workers"] += 1
            lines = [line async for line in export_worker(self._transactor, worker.id, tenant=TENANT)]
            self._judge(worker.id, [encode_line(line) for line in lines])
