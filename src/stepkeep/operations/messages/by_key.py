"""Sends messages by business key: to the live run that has the key, to a new run, or into the mailbox for a later one.

Every send locks its key after the runs, and so does every start with a key. Between a start and a send no message is
lost, and no id is delivered twice. The kernel decides what a message does to a run. The engine calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace
from uuid_utils import uuid7

from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.decide.draft import Missing
from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound, QuotaExceeded, Refused
from stepkeep.kernel.machine.events import MessageArrived, caller_of
from stepkeep.kernel.machine.fitting import misfit_of_event
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.kernel.people.authority import Caller, admit
from stepkeep.operations import validate
from stepkeep.operations.instants import instant
from stepkeep.operations.people.live_policies import LivePolicies
from stepkeep.operations.people.people import check_message_size
from stepkeep.operations.pipeline.batch import DecisionBatch
from stepkeep.operations.pipeline.first_messages import KEEP_US
from stepkeep.operations.pipeline.group_commit import Submissions, all_or_each
from stepkeep.operations.pipeline.plans import PlanCache
from stepkeep.operations.pipeline.start import (
    MAX_KEYS,
    Started,
    Starter,
    Starting,
    StartRequest,
    Templates,
    for_another_run,
    key_places,
)
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.change import Basis, Loaded, More, Want, Write
from stepkeep.store.records import RunFilter
from stepkeep.store.rows import (
    NO_RUN,
    BusinessKey,
    KeyWant,
    Mailbox,
    MailboxMessage,
)

MAX_TTL_US = 365 * 86_400_000_000
MAX_KEPT = 1000
"""How many messages are kept for one business key at most, and how many bytes of payload."""
MAX_KEPT_BYTES = 16 * 1024 * 1024


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """One message to a business key. With `start`, a run is started for it if no run has the key; with `over_quota`, it
    may go to a run of another sender only, and that is the answer if there is none."""

    key: str
    message: MessageArrived
    ttl: int = KEEP_US
    start: StartRequest | None = None
    over_quota: QuotaExceeded | None = None

    @property
    def business_key(self) -> BusinessKey:
        return (self.message.tenant, self.key)


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a message: it went to `run_id`, or is kept for a run until `kept_until`.

    `started`: this send started the run. `repeated`: the id was sent before, and nothing changed; `dropped`: it was
    dropped or has expired meanwhile. `consumed_by` is the number of the step that took it.
    """

    id: str
    key: str
    run_id: str | None = None
    consumed_by: int | None = None
    kept_until: int | None = None
    started: bool = False
    repeated: bool = False
    dropped: bool = False

    def record(self) -> Mapping[str, object]:
        return {**msgspec.structs.asdict(self), "kept_until": instant(self.kept_until)}


class _NeedsAnotherRun(Exception):
    """The run of a send ended before it could take the message, and the id of that run may be taken."""

    def __init__(self, start: StartRequest) -> None:
        super().__init__(start.run_id)
        self.start = start


class KeySender:
    """Groups sends by key into shared transactions. One per process."""

    def __init__(self, transactor: Transactor, starter: Starter) -> None:
        self._transactor, self._starter = transactor, starter
        self._lane: Submissions[Sending, Sent] = Submissions(
            self._send_batch, limit=MAX_KEYS, size_bytes=lambda sending: len(sending.message.payload)
        )

    async def send(
        self,
        key: str,
        name: str,
        payload: bytes,
        *,
        caller: Caller,
        message_id: str | None = None,
        ttl: int | None = None,
        start: StartRequest | None = None,
    ) -> Sent:
        """Send a message to the run with this business key; without one, start it or keep the message."""
        check_message_size(payload)
        message = MessageArrived(
            tenant=caller.tenant,
            run_id=NO_RUN,
            actor=validate.key("the actor", caller.actor),
            vouched_by=caller.vouched_by,
            key=caller.key,
            id=str(uuid7()) if message_id is None else validate.key("the message id", message_id),
            name=validate.key("the name of a message", name),
            payload=payload,
        )
        if (said := misfit_of_event(message)) is not None:
            raise InvalidInput(f"the message {message.id!a:.80}: {said}")
        [message], _ = await self._transactor.payloads.reduced((message,))
        if ttl is not None and not 0 < ttl <= MAX_TTL_US:
            raise InvalidInput("the time to live of a message must be more than 0 and at most 365 days")
        if start is not None and ttl is not None:
            raise InvalidInput("a message that starts a run is not kept: leave out the time to live, or the start")
        sending = Sending(
            key=validate.key("the business key", key),
            message=message,
            ttl=KEEP_US if ttl is None else ttl,
            start=None if start is None else await self._starter.reduced(replace(start, business_key=key)),
        )
        while True:
            try:
                return await self._send(sending)
            except _NeedsAnotherRun as needs:
                sending = replace(sending, start=for_another_run(needs.start))

    async def _send(self, sending: Sending) -> Sent:
        """Send a message, with a place under the quotas for the run that it may start."""
        tenant, new = sending.message.tenant, sending.start
        if new is None and sending.message.key is not None:
            try:
                await self._starter.quotas.add(tenant, "messages", len(sending.message.payload))
            except QuotaExceeded as problem:
                sending = replace(sending, over_quota=problem)  # it may still go to a run that lives
        if new is None or new.caller.key is None:
            return await self._lane.put(sending)
        try:
            async with self._starter.quotas.reserve(new.caller, new.run_id) as created:
                sent = await self._lane.put(sending)
                created(sent.run_id or "")
                return sent
        except QuotaExceeded as problem:
            # A message to a run that lives starts none. If that run ends before, none is started either.
            live = RunFilter(
                tenant=tenant,
                business_key=sending.key,
                states=tuple(one for one in RunState if one not in RUN_TERMINAL),
                limit=1,
            )
            if not await self._transactor.store.list_runs(live):
                raise
            return await self._lane.put(replace(sending, over_quota=problem))

    async def _send_batch(self, sendings: list[Sending]) -> list[Sent | Exception]:
        return await all_or_each(sendings, self._send_together)

    async def _send_together(self, sendings: list[Sending]) -> list[Sent | Exception]:
        """Send these. A message whose run ended in this very transaction is sent again: in the next one, or, if it may
        start a run, with another run, which needs a place of its own under the quotas."""
        transactor, answers = self._transactor, dict[int, Sent | Exception]()
        while left := [place for place in range(len(sendings)) if place not in answers]:
            asked = [sendings[place] for place in left]
            batch = await transactor.run(
                lambda asked=asked: KeyBatch(asked, transactor.plans, self._starter.template),  # type: ignore[misc]
                None,
            )
            transactor.unreadable.note_all(batch.barred)
            answers.update({left[place]: answer for place, answer in batch.answers.items()})
            for place in left:
                start = sendings[place].start
                if place not in answers and start is not None:
                    answers[place] = _NeedsAnotherRun(start)
        return [answers[place] for place in range(len(sendings))]


class KeyBatch:
    """The sends by key of one transaction.

    First it looks for the runs that have the keys, without a lock. It locks these, then the keys, and looks again: if
    another run has a key by then, the store starts the transaction again with that run.
    """

    def __init__(self, sendings: Sequence[Sending], plans: PlanCache, template: Templates) -> None:
        self.basis = Basis.LOCKED
        self._sendings, self._plans, self._template = sendings, plans, template
        self._live: LivePolicies = plans.live
        self._loaded: Loaded | None = None
        self._groups: dict[BusinessKey, list[int]] = {}
        for place, sending in enumerate(sendings):
            self._groups.setdefault(sending.business_key, []).append(place)
        self._rounds: Iterator[More] = iter(())
        self._deciding: DecisionBatch | None = None
        self._delivering: list[int] = []
        self.answers: dict[int, Sent | Exception] = {}
        """By place. A message that is to be sent again has no answer."""

    @property
    def barred(self) -> list[Exception]:
        return [] if self._loaded is None else list(self._loaded.barred.values())

    def wants(self) -> list[Want]:
        return []

    def is_certain(self) -> bool:
        return False

    def decide(self, loaded: Loaded) -> More | Write:
        if loaded is not self._loaded:
            self._loaded, self._rounds = loaded, self._look(loaded)
            self._deciding = None
        more = next(self._rounds, None)
        if more is not None:
            return more
        if self._deciding is None:
            self.answers, self._delivering = {}, []
            events = list(self._to_holders(loaded))
            self._deciding = DecisionBatch(self._plans, events)
        write = self._deciding.decide(loaded)
        if isinstance(write, More):
            return write
        answers = dict(self.answers)
        try:
            self._note_deliveries(self._deciding, write, loaded)
            self._start_or_keep(write, loaded)
        except Missing as missing:
            self.answers = answers
            return More(wants=(Want(tenant=NO_RUN, run_id=NO_RUN, people=tuple(missing.need.people)),))
        return write

    # -- look ----------------------------------------------------------------------------------------------------------
    def _look(self, loaded: Loaded) -> Iterator[More]:
        """What to load, one after the other."""
        yield More(business_keys=tuple(sorted(self._groups)))
        found = dict(loaded.business_keys)
        if unlocked := [self._want(key, run) for key, run in sorted(found.items()) if (key[0], run) not in loaded.runs]:
            yield More(wants=tuple(unlocked))
        starts = [sending.start for sending in self._sendings if sending.start is not None]
        promises = {place for one in starts for place in key_places(one)}
        yield More(
            keys=tuple(self._key_want(key, places) for key, places in sorted(self._groups.items())),
            idempotency=tuple(sorted(promises)),
        )
        boxes = loaded.mailboxes
        holders = {key: box.holder for key, box in boxes.items() if box.holder is not None}
        # Another run has the key since the first look: it must be locked before the key.
        if late := [self._want(key, run) for key, run in sorted(holders.items()) if not _is_known(key, run, loaded)]:
            yield More(wants=tuple(late))
        if callers := tuple({one for sending in self._sendings if (one := caller_of(sending.message)) is not None}):
            yield More(wants=(Want(tenant=callers[0].tenant, run_id=NO_RUN, people=callers),))
        runs = [loaded.runs[key[0], run] for key, run in holders.items() if (key[0], run) in loaded.runs]
        if unknown := {run.definition_id for run in runs if not self._plans.knows(run.definition_id)}:
            yield More(definitions=tuple(sorted(unknown)))
        self._plans.learn(loaded.definitions.values())
        if stale := self._live.stale({key[0] for key in self._groups}, loaded):
            yield More(policies=stale)
            self._live.stale({key[0] for key in self._groups}, loaded)
        if windows := self._live.unread_spend({key[0] for key in self._groups}, loaded):
            yield More(spend=windows)
            self._live.unread_spend({key[0] for key in self._groups}, loaded)

    def _want(self, key: BusinessKey, run_id: str) -> Want:
        messages = [self._sendings[place].message for place in self._groups[key]]
        return Want(tenant=key[0], run_id=run_id, waiting=True, messages=tuple(message.id for message in messages))

    def _key_want(self, key: BusinessKey, places: Sequence[int]) -> KeyWant:
        sendings = [self._sendings[place] for place in places]
        return KeyWant(
            tenant=key[0],
            key=key[1],
            ids=tuple(dict.fromkeys(sending.message.id for sending in sendings)),
            kept=any(sending.start is not None for sending in sendings),
        )

    # -- to runs that have the keys ------------------------------------------------------------------------------------
    def _to_holders(self, loaded: Loaded) -> Iterator[MessageArrived]:
        """Answer what was sent before; the events of the others whose key a run has."""
        for key, places in self._groups.items():
            box = loaded.mailboxes[key]
            for place in self._new(places, box, loaded.now):
                sending = self._sendings[place]
                if box.holder is None:
                    continue
                if (refused := self._refusal(sending, box.holder, loaded)) is not None:
                    self.answers[place] = refused
                    continue
                self._delivering.append(place)
                yield replace(sending.message, run_id=box.holder)

    def _new(self, places: Sequence[int], box: Mailbox, now: int) -> Iterator[int]:
        """The messages that were not sent before. Of two with one id in this batch, the second is sent again later."""
        seen = set()
        for place in places:
            sending = self._sendings[place]
            known, starts = box.known.get(sending.message.id), sending.start is not None and box.holder is None
            if known is not None and known.forget_at > now and not (starts and known.is_kept(now)):
                self.answers[place] = _sent_before(known, now)
            elif sending.message.id not in seen:
                seen.add(sending.message.id)
                yield place

    def _refusal(self, sending: Sending, holder: str, loaded: Loaded) -> Exception | None:
        key = (sending.message.tenant, holder)
        if key not in loaded.runs and key not in loaded.barred:
            return NotFound(f"run {holder} has the business key {sending.key!r} and is not there")
        if sending.start is None or key not in loaded.runs:
            return None
        plan, wanted = self._plans.get(loaded.runs[key].definition_id), sending.start.plan.definition.name
        if plan is None or plan.definition.name == wanted:
            return None
        said = f"run {holder} of {plan.definition.name} is live under the business key {sending.key!r}"
        return Conflict(f"{said}; {wanted} cannot be started with it. Send without the start.", {"run_id": holder})

    def _note_deliveries(self, deciding: DecisionBatch, write: Write, loaded: Loaded) -> None:
        for place, reply in zip(self._delivering, deciding.replies, strict=True):
            sending = self._sendings[place]
            holder = loaded.mailboxes[sending.business_key].holder
            assert holder is not None
            decision = deciding.decisions.get((sending.message.tenant, holder))
            if isinstance(reply, Accepted):
                write.rows.add(_row(sending, loaded.now, run_id=holder))
                self.answers[place] = _sent(sending, holder, reply)
            elif not (isinstance(reply, Conflict) and decision is not None and decision.run.state in RUN_TERMINAL):
                self.answers[place] = reply or Refused("the message was not decided on")

    # -- to new runs, and into the mailbox -----------------------------------------------------------------------------
    def _start_or_keep(self, write: Write, loaded: Loaded) -> None:
        starting = Starting(loaded, self._template, self._live)
        for key, places in self._groups.items():
            box = loaded.mailboxes[key]
            if box.holder is None:
                new = [place for place in self._new(places, box, loaded.now) if self._admitted(place, loaded)]
                if not self._start(starting, new, box, loaded):
                    self._refuse_over_quota(new)
                    self._keep(new, box, write, loaded.now)
        write.new_runs += starting.write.new_runs
        write.rows.take(starting.write.rows)

    def _admitted(self, place: int, loaded: Loaded) -> bool:
        """Whether the sender may act. The kernel is not asked, because there is no run to decide on."""
        message = self._sendings[place].message
        caller: Caller | None = caller_of(message)
        if caller is None:
            return True
        try:
            admit(loaded.authorities[caller], caller, loaded.now)
        except Refused as refused:
            self.answers[place] = refused.with_traceback(None)
            return False
        return True

    def _start(self, starting: Starting, new: Sequence[int], box: Mailbox, loaded: Loaded) -> bool:
        """Start a run for the first message that asks for one, and deliver them all. Returns whether one started."""
        for place in new:
            request = self._sendings[place].start
            if request is None or place in self.answers or self._sendings[place].over_quota is not None:
                continue
            kept = {one.id for one in box.kept if one.is_kept(loaded.now)}
            own = [self._sendings[one].message for one in new if one not in self.answers]
            messages = [replace(one, run_id=request.run_id) for one in own if one.id not in kept]
            try:
                started = starting.start(request, messages)
            except Missing:
                raise
            except Exception as problem:  # noqa: BLE001 - refused or broken, it is this one's alone
                self.answers[place] = problem
                continue
            if not started.created:
                said = f"the idempotency key {request.idempotency_key!r} started run {started.run_id}, which has ended"
                self.answers[place] = Conflict(f"{said}. Use a new key to start another.", {"run_id": started.run_id})
                continue
            self._note_started(starting, new, place, started, loaded.now, kept)
            return True
        return False

    def _refuse_over_quota(self, new: Sequence[int]) -> None:
        for place in new:
            problem = self._sendings[place].over_quota
            if problem is not None and place not in self.answers:
                self.answers[place] = problem.with_traceback(None)

    def _note_started(
        self, starting: Starting, new: Sequence[int], by: int, started: Started, now: int, kept: set[str]
    ) -> None:
        for place in new:
            sending = self._sendings[place]
            reply: Reply | None = starting.replies.get(sending.message.id)
            if place in self.answers:
                continue
            if not isinstance(reply, Accepted):
                # The run ended before it could take the message, which is sent again. A run that took no message at all
                # ends as soon as it is created, and so would the next one.
                if place == by and not any(isinstance(one, Accepted) for one in starting.replies.values()):
                    said = f"run {started.run_id} was started and ended at once, before it could take a message"
                    self.answers[place] = Conflict(f"{said}.", {"run_id": started.run_id})
                continue
            if sending.message.id not in kept:
                starting.write.rows.add(_row(sending, now, run_id=started.run_id))
            self.answers[place] = _sent(sending, started.run_id, reply, started=place == by)

    def _keep(self, new: Sequence[int], box: Mailbox, write: Write, now: int) -> None:
        count, size_bytes, number = box.count, box.size_bytes, box.last_number
        for place in new:
            sending = self._sendings[place]
            if place in self.answers:
                continue
            size = len(sending.message.payload)
            if sending.over_quota is not None:
                self.answers[place] = sending.over_quota
                continue
            if count >= MAX_KEPT or size_bytes + size > MAX_KEPT_BYTES:
                said = f"{count} messages of {size_bytes} bytes are kept for the business key {sending.key!r}"
                self.answers[place] = Conflict(
                    f"{said}, and no run has it; at most {MAX_KEPT} messages of {MAX_KEPT_BYTES} bytes are kept. Start "
                    "the run, or drop messages with `stepkeep mailbox drop`.",
                    {"kept": count},
                )
                continue
            count, size_bytes, number = count + 1, size_bytes + size, number + 1
            row = _row(sending, now, number=number)
            write.rows.add(row)
            self.answers[place] = Sent(id=row.id, key=row.key, kept_until=row.expires_at)


def _is_known(key: BusinessKey, run: str, loaded: Loaded) -> bool:
    return (key[0], run) in loaded.runs or (key[0], run) in loaded.barred


def _row(sending: Sending, now: int, *, run_id: str | None = None, number: int = 0) -> MailboxMessage:
    message, expires_at = sending.message, now + sending.ttl
    return MailboxMessage(
        tenant=message.tenant,
        key=sending.key,
        id=message.id,
        number=number,
        name=message.name,
        payload=message.payload if run_id is None else None,
        sender=message.actor,
        vouched_by=message.vouched_by,
        key_id=message.key,
        arrived_at=now,
        expires_at=expires_at,
        forget_at=max(expires_at, now + KEEP_US),
        run_id=run_id,
    )


def _sent(sending: Sending, run_id: str, reply: Accepted, *, started: bool = False) -> Sent:
    return Sent(
        id=sending.message.id,
        key=sending.key,
        run_id=run_id,
        consumed_by=reply.record.get("consumed_by"),
        started=started,
        repeated=reply.repeated,
    )


def _sent_before(known: MailboxMessage, now: int) -> Sent:
    return Sent(
        id=known.id,
        key=known.key,
        run_id=known.run_id,
        kept_until=known.expires_at if known.is_kept(now) else None,
        repeated=True,
        dropped=known.run_id is None and not known.is_kept(now),
    )
