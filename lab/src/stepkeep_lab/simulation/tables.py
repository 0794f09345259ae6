"""The rows of the model database, with two operations: check a write, and apply it.

Rows are frozen values, so that a reader keeps what it has read. Nothing here waits or locks; a transaction (`session`)
decides when to check and when to apply.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.decide.decision import asked_names
from stepkeep.kernel.errors import Contended, InvariantBroken
from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.rows import (
    Attempt,
    Checkpoint,
    ChildMode,
    Consumed,
    Details,
    Gate,
    GateChange,
    Message,
    OutboxEntry,
    Requesters,
    Run,
    Step,
    Vote,
    Worker,
)
from stepkeep.kernel.machine.states import RUN_TERMINAL, AttemptState
from stepkeep.store.bounds import check_write
from stepkeep.store.change import (
    IdempotencyKey,
    KeyPlace,
    NewRun,
    RunKey,
    Spent,
    StoredDefinition,
    StoredPolicy,
    StoredSchema,
    StoredSetting,
    Write,
)
from stepkeep.store.records import Evidence, Quarantine, SignedHead, WorkerReport
from stepkeep.store.rows import (
    AdoptionRow,
    BusinessKey,
    KeyWant,
    Mailbox,
    MailboxMessage,
    Payload,
    ReleasedKey,
    ReleasedUndo,
)
from stepkeep_lab.simulation.child_tables import ChildRows
from stepkeep_lab.simulation.conversation_tables import ConversationRows
from stepkeep_lab.simulation.delivery_tables import DeliveryRows
from stepkeep_lab.simulation.job_tables import JobRows
from stepkeep_lab.simulation.limit_tables import LimitRows
from stepkeep_lab.simulation.people_tables import PeopleRows
from stepkeep_lab.simulation.resource_tables import HoldRows
from stepkeep_lab.simulation.schema import refuse_run, refuse_step
from stepkeep_lab.simulation.slot_tables import SlotRows
from stepkeep_lab.simulation.stream_tables import StreamRows
from stepkeep_lab.simulation.trigger_tables import TriggerRows

MET = "another transaction conflicts: run the whole transaction again"


class Tables:
    """Everything that is committed."""

    def __init__(self) -> None:
        self.definitions: dict[int, StoredDefinition] = {}
        self.schemas: dict[tuple[str, str], StoredSchema] = {}
        self.queues: dict[tuple[str, str], int] = {}
        self.runs: dict[RunKey, Run] = {}
        self.details: dict[RunKey, Details] = {}
        self.steps: dict[RunKey, dict[int, Step]] = {}
        self.attempts: dict[RunKey, dict[tuple[int, int], Attempt]] = {}
        self.journal: dict[RunKey, dict[int, SealedEntry]] = {}
        self.positions: dict[tuple[str, str, int], int] = {}
        """The order in which journal entries were committed."""
        self.messages: dict[RunKey, dict[str, Message]] = {}
        self.outbox: dict[RunKey, dict[tuple[int, int], OutboxEntry]] = {}
        self.gates: dict[RunKey, dict[tuple[int, int], Gate]] = {}
        self.votes: dict[RunKey, dict[tuple[int, int, str], Vote]] = {}
        self.checkpoints: dict[RunKey, dict[tuple[int, str], Checkpoint]] = {}
        self.adoptions: dict[RunKey, tuple[AdoptionRow, ...]] = {}
        self.idempotency: dict[KeyPlace, IdempotencyKey] = {}
        self.business: dict[BusinessKey, str] = {}
        self.mailbox: dict[tuple[str, str, str], MailboxMessage] = {}
        self.workers: dict[int, Worker] = {}
        self.worker_journal: dict[tuple[str, str], list[SealedEntry]] = {}
        self.reports: dict[tuple[str, int], WorkerReport] = {}
        self.evidence: dict[RunKey, dict[tuple[int, int], Evidence]] = {}
        self.payloads: dict[RunKey, dict[str, bytes]] = {}
        self.notes: list[str] = []
        self.quarantine: list[Quarantine] = []
        self.people = PeopleRows()
        self.deliveries = DeliveryRows()
        self.jobs = JobRows()
        self.conversations = ConversationRows()
        self.children = ChildRows()
        self.slots = SlotRows()
        self.holds = HoldRows()
        self.limits = LimitRows()
        self.streams = StreamRows()
        self.signed_heads: dict[RunKey, dict[str, SignedHead]] = {}
        self.policies: dict[str, list[StoredPolicy]] = {}
        self.settings: dict[tuple[str, str, str], list[StoredSetting]] = {}
        self.triggers = TriggerRows()

    def costs_below(self, key: RunKey) -> tuple[bytes | None, ...]:
        """What the ended attempts of a run cost, of the runs below it that it waits for, and of those that they were
        migrated from."""
        keys = [key]
        moved = {(one.tenant, one.run_id): one.key for one in self.idempotency.values() if one.operation == "migrate"}
        for one in keys:  # grows during the loop
            keys += [(one[0], moved[one])] if one in moved else []
            keys += [(one[0], child.child_id) for child in self.children.of(*one) if child.mode is ChildMode.AWAITED]
        return tuple(attempt.cost for one in sorted(keys) for _, attempt in sorted(self.attempts.get(one, {}).items()))

    def output_of(self, key: RunKey, no: int) -> bytes | None:
        """What a step produced: its note's output, or that of the attempt that succeeded under the right fence."""
        step = self.steps.get(key, {}).get(no)
        if step is None:
            return None
        if step.note is not None and step.note.output is not None:
            return step.note.output.encode()
        fence = step.note.checked if step.note is not None and step.note.checked is not None else step.fence
        attempt = self.attempts[key].get((no, fence))
        return attempt.output if attempt is not None and attempt.state is AttemptState.SUCCEEDED else None

    def requesters(self, key: RunKey) -> frozenset[str]:
        """The people who asked for a run, and for the runs that it repeats."""
        details = self.details.get(key)
        return frozenset() if details is None else frozenset({details.created_by, *asked_names(details.asked_before)})

    def spent(self, tenant: str, since: int) -> tuple[Spent, ...]:
        """What attempts that ended after a moment cost, by workflow."""
        sums: dict[str, Spent] = {}
        for key, attempts in self.attempts.items():
            for attempt in attempts.values():
                if key[0] != tenant or attempt.cost is None or attempt.ended_at <= since:
                    continue
                workflow, cost = self.details[key].workflow, msgspec.json.decode(attempt.cost)
                old = sums.get(workflow, Spent(workflow, 0.0, 0.0, 0))
                usd, tokens = old.usd + cost.get("usd", 0.0), old.tokens + cost.get("tokens", 0.0)
                sums[workflow] = Spent(workflow, usd, tokens, old.attempts + 1)
        return tuple(one for _, one in sorted(sums.items()))

    def executors(self, key: RunKey) -> dict[int, frozenset[str]]:
        """The owners of the workers that executed steps of a run or execute them now, by step number."""
        owners = {worker.no: worker.owner for worker in self.workers.values()}
        found: dict[int, frozenset[str]] = {}
        ended = [(no, attempt.worker) for (no, _), attempt in self.attempts.get(key, {}).items()]
        held = [(step.no, step.worker) for step in self.steps.get(key, {}).values() if step.worker is not None]
        for no, worker in (*ended, *held):
            if (owner := owners.get(worker)) is not None:
                found[no] = found.get(no, frozenset()) | {owner}
        return found

    # -- messages by key ---------------------------------------------------------------------------------------------
    def mailbox_of(self, want: KeyWant) -> Mailbox:
        """What is known about a business key."""
        mine = [one for one in self.mailbox.values() if (one.tenant, one.key) == want.business_key]
        kept = sorted((one for one in mine if one.payload is not None), key=lambda one: (one.number, one.id))
        return Mailbox(
            holder=self.business.get(want.business_key),
            known={one.id: one for one in mine if one.id in want.ids},
            kept=tuple(kept) if want.kept else (),
            count=len(kept),
            size_bytes=sum(len(one.payload or b"") for one in kept),
            last_number=max((one.number for one in kept), default=0),
        )

    def drop_mailbox(self, tenant: str, key: str, message_id: str | None, now: int) -> list[str]:
        """Drop what is kept for a key, or one message of it."""
        dropped = [
            one
            for one in self.mailbox.values()
            if (one.tenant, one.key) == (tenant, key) and one.payload is not None and message_id in (None, one.id)
        ]
        for one in dropped:
            self.mailbox[tenant, key, one.id] = replace(one, payload=None, expires_at=min(one.expires_at, now))
        return sorted(one.id for one in dropped)

    def forget_mailbox(self, now: int, limit: int) -> int:
        """Forget messages whose time has come."""
        gone = sorted((one.forget_at, place) for place, one in self.mailbox.items() if one.forget_at <= now)[:limit]
        for _, place in gone:
            del self.mailbox[place]
        return len(gone)

    # -- quarantine --------------------------------------------------------------------------------------------------
    def is_quarantined(self, key: RunKey) -> bool:
        return any(one.released_at is None and (one.tenant, one.run_id) == key for one in self.quarantine)

    def set_aside(self, one: Quarantine) -> Quarantine | None:
        """Note a quarantine; None where there is no such run or it is set aside already."""
        key = (one.tenant, one.run_id)
        if key not in self.runs or self.is_quarantined(key):
            return None
        self.quarantine.append(one)
        return one

    def release(self, key: RunKey, now: int, actor: str, reason: str) -> Quarantine | None:
        """End a quarantine; None where there is none."""
        for place, one in enumerate(self.quarantine):
            if one.released_at is None and (one.tenant, one.run_id) == key:
                ended = replace(one, released_at=now, released_by=actor, release_reason=reason)
                self.quarantine[place] = ended
                return ended
        return None

    # -- check -------------------------------------------------------------------------------------------------------
    def check(self, what: Write) -> None:
        """Refuse what a real database would: Contended for a row that is not where it was left or is there already,
        InvariantBroken for one that must not be."""
        check_write(what)
        released = {(one.tenant, one.key) for one in what.rows.of(ReleasedKey)}
        given_up = {(one.tenant, one.run_id) for one in what.rows.of(ReleasedUndo)}
        for new in what.new_runs:
            self._check_new(new, released, given_up)
        for change in what.runs:
            before = self.runs.get((change.run.tenant, change.run.id))
            if before is None or before.seq != change.was or self.is_quarantined((before.tenant, before.id)):
                raise Contended(MET)
            refuse_run(change.run, before)
        for step in what.new_steps:
            if step.no in self.steps.get((step.tenant, step.run_id), {}):
                raise Contended(MET)
            refuse_step(step)
        added = {(step.tenant, step.run_id, step.no): step for step in what.new_steps}
        for step in what.steps:
            old = self.steps.get((step.tenant, step.run_id), {}).get(step.no)
            old = old or added.get((step.tenant, step.run_id, step.no))
            if old is None:
                raise InvariantBroken("a step was to be changed that does not exist; nothing was written")
            refuse_step(step, old)
        self._check_record(what)

    def _check_new(self, new: NewRun, released: set[tuple[str, str]], given_up: set[RunKey]) -> None:
        run = new.run
        if (run.tenant, run.id) in self.runs:
            raise Contended(MET)
        if any(promise.scoped_key in self.idempotency for promise in new.rows.of(IdempotencyKey)):
            raise Contended(MET)
        if run.business_key is not None and run.state not in RUN_TERMINAL:
            key = (run.tenant, run.business_key)
            if key in self.business and key not in released:
                raise Contended(MET)
        refuse_run(run)
        for step in new.steps:
            refuse_step(step)
        for one in new.rows.of(AdoptionRow):
            taken = (owner for owner in self.adopted_from((one.tenant, one.source_run)) if owner.owned)
            rivals = [owner for owner in taken if owner.source_step == one.source_step]
            if one.owned and any((owner.tenant, owner.run_id) not in given_up for owner in rivals):
                raise Contended(MET)

    def adopted_from(self, key: RunKey) -> tuple[AdoptionRow, ...]:
        """What runs adopted from this one."""
        rows = (row for mine in self.adoptions.values() for row in mine)
        return tuple(row for row in rows if (row.tenant, row.source_run) == key)

    def may_go(self, key: RunKey) -> bool:
        """Whether retention may delete an ended run: nobody set it aside or adopted from it, nothing is left to
        deliver, to tell a trigger or to do for a child, and no run above it is live or adopted from."""
        link = self.children.link_of(*key)
        links = [*self.children.of(*key), *([] if link is None else [link])]
        return not (
            self.is_quarantined(key)
            or self.deliveries.holds_back(key)
            or self.triggers.holds_back(key)
            or self.is_referred(key)
            or any(child.todo is not None for child in links)
            or self.is_below_live(key)
        )

    def is_referred(self, key: RunKey) -> bool:
        """Whether a live run adopted from this one."""
        return any(self.runs[row.tenant, row.run_id].ended_at is None for row in self.adopted_from(key))

    def runs_above(self, key: RunKey) -> tuple[tuple[str, int], ...]:
        """The runs above a child that wait for it, with their definitions, the nearest first."""
        found: list[tuple[str, int]] = []
        link = self.children.link_of(*key)
        while link is not None and link.mode is ChildMode.AWAITED:
            found.append((link.run_id, self.runs[link.tenant, link.run_id].definition_id))
            link = self.children.link_of(link.tenant, link.run_id)
        return tuple(found)

    def is_below_live(self, key: RunKey) -> bool:
        """Whether a run above this one is live, or a live run adopted from it."""
        link = self.children.link_of(*key)
        while link is not None:
            above = (link.tenant, link.run_id)
            parent = self.runs.get(above)
            if (parent is not None and parent.ended_at is None) or self.is_referred(above):
                return True
            link = self.children.link_of(*above)
        return False

    def _check_record(self, what: Write) -> None:
        self.triggers.check(what)
        self.children.refuse(what)
        self.streams.check(what)
        self.slots.refuse(what)
        for attempt in what.attempts:
            if (attempt.no, attempt.fence) in self.attempts.get((attempt.tenant, attempt.run_id), {}):
                raise Contended(MET)
        for entry in what.entries:
            if entry.seq in self.journal.get((entry.tenant, entry.run_id), {}):
                raise Contended(MET)
        arrived = {(message.tenant, message.run_id, message.id) for message in what.rows.of(Message)}
        for message in what.rows.of(Message):
            if message.id in self.messages.get((message.tenant, message.run_id), {}):
                raise Contended(MET)
        for taken in what.rows.of(Consumed):
            kept = self.messages.get((taken.tenant, taken.run_id), {}).get(taken.id)
            if kept is None and (taken.tenant, taken.run_id, taken.id) in arrived:
                continue
            if kept is None or kept.consumed_by is not None:
                raise Contended(MET)
        for sent in what.rows.of(MailboxMessage):
            before = self.mailbox.get((sent.tenant, sent.key, sent.id))
            if before is not None and before.payload is None and before.forget_at > sent.arrived_at:
                raise Contended(MET)
            if (sent.run_id is not None and sent.payload is not None) or sent.forget_at < sent.expires_at:
                raise InvariantBroken(f"the schema refused a message that contradicts itself: {sent}")

    def _place(self, entry: SealedEntry) -> None:
        self.positions[entry.tenant, entry.run_id, entry.seq] = len(self.positions) + 1

    # -- write -------------------------------------------------------------------------------------------------------
    def write(self, what: Write) -> None:
        """Make it so; it was checked."""
        rows = what.every_row()
        for released in rows.of(ReleasedKey):
            self.business.pop((released.tenant, released.key), None)
        for given_up in rows.of(ReleasedUndo):
            run_key = (given_up.tenant, given_up.run_id)
            self.adoptions[run_key] = tuple(replace(one, owned=0) for one in self.adoptions.get(run_key, ()))
        for new in what.new_runs:
            self._write_new(new)
        for change in what.runs:
            self.runs[change.run.tenant, change.run.id] = change.run
        for step in (*what.new_steps, *what.steps):
            self.steps[step.tenant, step.run_id][step.no] = step
        for attempt in what.attempts:
            self.attempts[attempt.tenant, attempt.run_id][attempt.no, attempt.fence] = attempt
        for entry in what.entries:
            self.journal[entry.tenant, entry.run_id][entry.seq] = entry
            self._place(entry)
        for message in rows.of(Message):
            self.messages[message.tenant, message.run_id][message.id] = message
        for taken in rows.of(Consumed):
            inbox = self.messages[taken.tenant, taken.run_id]
            inbox[taken.id] = replace(inbox[taken.id], consumed_by=taken.consumed_by)
        for sent in rows.of(MailboxMessage):
            self.mailbox[sent.tenant, sent.key, sent.id] = sent
        for told in rows.of(OutboxEntry):
            self.outbox[told.tenant, told.run_id][told.seq, told.number] = told
        for gate in rows.of(Gate):
            self.gates[gate.tenant, gate.run_id][gate.no, gate.activation] = gate
        for gate_change in rows.of(GateChange):
            self._change_gate(gate_change)
        for vote in rows.of(Vote):
            mine = self.votes[vote.tenant, vote.run_id]
            if (vote.no, vote.activation, vote.person) in mine:
                raise Contended("a person decides once about a gate")
            mine[vote.no, vote.activation, vote.person] = vote
        for recorded in rows.of(Checkpoint):
            known = self.checkpoints.setdefault((recorded.tenant, recorded.run_id), {})
            if (recorded.no, recorded.name) in known:
                raise InvariantBroken("a checkpoint never changes")
            known[recorded.no, recorded.name] = recorded
        for asked in rows.of(Requesters):
            key = (asked.tenant, asked.run_id)
            self.details[key] = replace(self.details[key], asked_before=asked.asked_before)
        self.triggers.write(what)
        self.children.write(what)
        self.slots.write(what)
        self.holds.write(what, self.steps)
        self.limits.write(what.limits, self)
        self.streams.write(what)
        for payload in rows.of(Payload):
            self.payloads.setdefault((payload.tenant, payload.run_id), {})[payload.digest] = payload.body

    def votes_of(self, key: RunKey) -> list[Vote]:
        """The decisions about the gates of a run, in order."""
        rows = self.votes.get(key, {}).values()
        return sorted(rows, key=lambda one: (one.no, one.activation, one.at, one.person))

    def checkpoints_of(self, key: RunKey) -> list[Checkpoint]:
        """What the handlers of a run recorded, by step, in order."""
        rows = self.checkpoints.get(key, {}).values()
        return sorted(rows, key=lambda one: (one.no, one.seq, one.name))

    def _change_gate(self, change: GateChange) -> None:
        mine = self.gates[change.tenant, change.run_id]
        if (gate := mine.get((change.no, change.activation))) is not None:
            if gate.closed_at is not None:
                raise InvariantBroken("a gate is closed once")
            # A database gives back text, and not the member of an enumeration.
            outcome = None if change.outcome is None else str(change.outcome)
            mine[change.no, change.activation] = replace(
                gate, level=change.level, due_at=change.due_at, closed_at=change.closed_at, outcome=outcome
            )

    def _write_new(self, new: NewRun) -> None:
        run = new.run
        key = (run.tenant, run.id)
        self.runs[key], self.details[key] = run, new.details
        self.steps[key] = {step.no: step for step in new.steps}
        self.attempts[key] = {}
        self.journal[key] = {entry.seq: entry for entry in new.entries}
        for entry in new.entries:
            self._place(entry)
        self.messages[key], self.outbox[key], self.gates[key], self.votes[key] = {}, {}, {}, {}
        self.adoptions[key] = tuple(new.rows.of(AdoptionRow))
        for promise in new.rows.of(IdempotencyKey):
            self.idempotency[promise.scoped_key] = promise
        if run.business_key is not None and run.state not in RUN_TERMINAL:
            self.business[run.tenant, run.business_key] = run.id

    # -- retention ---------------------------------------------------------------------------------------------------
    def delete(self, key: RunKey) -> None:
        """Forget a finished run and all that belongs to it."""
        if self.runs[key].state not in RUN_TERMINAL:
            raise InvariantBroken("only a finished run can be deleted")
        for rows in (self.runs, self.details, self.steps, self.attempts, self.journal, self.messages, self.outbox):
            rows.pop(key)
        self.gates.pop(key)
        self.adoptions.pop(key)
        self.children.delete(*key)
        self.slots.rows.pop(key, None)
        self.holds.delete(key)
        self.limits.delete(key)
        self.signed_heads.pop(key, None)
        self.votes.pop(key)
        self.checkpoints.pop(key, None)
        self.evidence.pop(key, None)
        self.streams.delete(key)
        self.payloads.pop(key, None)
        for cursor in self.deliveries.of_run(key):
            del self.deliveries.cursors[*key, cursor.sink]

    def forget_keys(self, tenant: str, before: str, limit: int) -> int:
        """Forget promises made for runs that are gone."""
        gone = [
            key
            for key, promise in self.idempotency.items()
            if promise.tenant == tenant and promise.run_id < before and (tenant, promise.run_id) not in self.runs
        ]
        for key in gone[:limit]:
            del self.idempotency[key]
        return len(gone[:limit])
