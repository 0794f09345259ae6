"""The transactor of a torture process: it counts refusals, and reports on lost claims like a defective worker.

A worker that has lost a lease drops the result of its handler. This one reports it several times: every such report
must be refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from stepkeep.kernel.decide.decision import Accepted, Claimer
from stepkeep.kernel.errors import Fenced, Refused, StoreError
from stepkeep.kernel.machine.events import Event, StepReported, TimeCame
from stepkeep.kernel.machine.outcomes import Completed, Failed, Outcome
from stepkeep.kernel.machine.states import AttemptState, Category
from stepkeep.operations.pipeline.batch import Answer
from stepkeep.operations.pipeline.transact import Claim, Transactor
from stepkeep.store.change import RunKey
from stepkeep.store.protocol import Store
from stepkeep_lab.torture.ledger import Tally
from stepkeep_lab.torture.points import Doing, doing

LATE = b'{"key":"late","nonce":"late"}'
PAUSES = (0.0, 0.3, 1.5)
"""When a lost claim is written for again (seconds): before, while and after its successor runs."""

Name = tuple[str, int, int]


class LateTransactor(Transactor):
    """`zombie` says whether it writes for claims that it has lost."""

    def __init__(self, store: Store, tally: Tally, *, zombie: bool = False) -> None:
        super().__init__(store)
        self._tally, self._zombie = tally, zombie
        self._unanswered: set[Name] = set()
        self._late: set[asyncio.Task[None]] = set()

    async def claim(
        self, claimer: Claimer, *, limit: int, after: int | None = None, run: RunKey | None = None
    ) -> list[Claim]:
        doing.set(Doing.CLAIM)
        return await super().claim(claimer, limit=limit, after=after, run=run)

    async def submit_all(self, events: Sequence[Event]) -> list[Answer]:
        doing.set(Doing.SWEEP if any(isinstance(event, TimeCame) for event in events) else Doing.OTHER)
        return await super().submit_all(events)

    async def report(self, events: Sequence[StepReported], claimer: Claimer | None) -> tuple[list[Answer], list[Claim]]:
        doing.set(Doing.REPORT)
        try:
            replies, claims = await super().report(events, claimer)
        except StoreError:
            self._unanswered |= {_name(event) for event in events}
            raise
        for event, reply in zip(events, replies, strict=True):
            if _name(event) in self._unanswered:
                await self._resolve(event, reply)
            else:
                self._tally.add("fenced writes", isinstance(reply, Fenced))
        return replies, claims

    async def _resolve(self, event: StepReported, reply: Answer) -> None:
        """What had become of a report that was never answered: made again, found committed, or overtaken."""
        self._unanswered.discard(_name(event))
        if isinstance(reply, Accepted) and not reply.repeated:
            self._tally.add("unknown reports made again")
            return
        with suppress(StoreError):
            attempts = await self.store.read_attempts(event.tenant, event.run_id)
            mine = {attempt.state for attempt in attempts if (attempt.no, attempt.fence) == (event.no, event.fence)}
            committed = bool(mine) and AttemptState.LOST not in mine
            self._tally.add("unknown reports found committed" if committed else "unknown reports overtaken")

    # -- late writes -------------------------------------------------------------------------------------------------
    def forget(self, claim: Claim) -> None:
        # Who writes for claims that it has lost remembers them, and believes what it remembers.
        if not self._zombie:
            super().forget(claim)
        else:
            task = asyncio.get_running_loop().create_task(self._write_late(claim))
            self._late.add(task)
            task.add_done_callback(self._late.discard)

    async def _write_late(self, claim: Claim) -> None:
        for pause in PAUSES:
            await asyncio.sleep(pause)
            for outcome in (Completed(output=LATE), Failed(category=Category.VALIDATION, error="late", final=True)):
                await self._try_late(claim, outcome)

    async def _try_late(self, claim: Claim, outcome: Outcome) -> None:
        event = StepReported(
            tenant=claim.tenant,
            run_id=claim.run_id,
            actor="late",
            no=claim.step.no,
            fence=claim.step.fence,
            worker=claim.step.worker or 0,
            outcome=outcome,
        )
        try:
            [reply] = await super().submit_all([event])
        except StoreError:
            return
        self._tally.add("late writes tried")
        self._tally.add("late writes refused" if isinstance(reply, Refused) else "late writes accepted")


def _name(event: StepReported) -> Name:
    return (event.run_id, event.no, event.fence)
