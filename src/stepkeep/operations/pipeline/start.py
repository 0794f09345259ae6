"""Starts runs: one run per idempotency key of a caller, one live run per business key, all steps inserted.

Starts share transactions through a lane. A run may be created idle and started later.
The kernel decides what a new run looks like. The engine calls it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from uuid_utils import uuid7

from stepkeep.definition.bounds import MAX_PRIORITY
from stepkeep.definition.expressions.json_schema import check_json_input, is_declared, is_quick
from stepkeep.kernel.composition.child_runs import CONTINUE
from stepkeep.kernel.composition.continuation import Continuation, ContinuationKind
from stepkeep.kernel.decide.create import StartTemplate, create_run, start_template
from stepkeep.kernel.decide.decision import Accepted, Claimer, Decision, Reply, check_requesters
from stepkeep.kernel.decide.draft import Missing
from stepkeep.kernel.decide.execution_slots import waiting_numbers
from stepkeep.kernel.decide.policy import Policy
from stepkeep.kernel.errors import (
    Conflict,
    ConnectionLost,
    InvalidInput,
    KeyReused,
    QuotaExceeded,
    StepkeepError,
    StoreUnavailable,
)
from stepkeep.kernel.machine.events import MessageArrived, PauseRequested, RunStarted, StepClaimed
from stepkeep.kernel.machine.payloads import PREFIX
from stepkeep.kernel.machine.rows import Details, Run, rows_of
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.kernel.machine.tables import RUN, RunTrigger
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer
from stepkeep.operations.aside import aside_large
from stepkeep.operations.continuation.adopting import Continuations, adopted_runs, adoption_rows, continued_runs
from stepkeep.operations.definitions.withdrawn import Withdrawals
from stepkeep.operations.delivery.declared_hooks import hook_cursors
from stepkeep.operations.delivery.run_webhooks import check_webhook, run_webhook
from stepkeep.operations.limits.pauses import PauseReader, pauses_of_idle
from stepkeep.operations.limits.slots import KnownLimits, grant_slots
from stepkeep.operations.people.live_policies import LivePolicies
from stepkeep.operations.people.people import requested
from stepkeep.operations.people.quotas import QuotaKeeper
from stepkeep.operations.pipeline.batch import DecisionBatch, notices_of
from stepkeep.operations.pipeline.fingerprints import FORMAT, difference, fingerprint
from stepkeep.operations.pipeline.first_messages import delivered, kept_event, with_events
from stepkeep.operations.pipeline.group_commit import Submissions, all_or_each
from stepkeep.operations.pipeline.payloads import INLINE_INPUT_BYTES
from stepkeep.operations.pipeline.plans import PlanCache
from stepkeep.operations.pipeline.shared_reads import SharedReads
from stepkeep.operations.pipeline.transact import Claim, Transactor, Unlocked, claims_of
from stepkeep.operations.runs.spans import LABEL, current, root_of
from stepkeep.store.change import (
    ANY_CALLER,
    Basis,
    IdempotencyKey,
    KeyPlace,
    Loaded,
    More,
    NewRun,
    Want,
    Write,
)
from stepkeep.store.protocol import Transaction
from stepkeep.store.rows import (
    NO_RUN,
    BusinessKey,
    KeyWant,
    MailboxMessage,
    Payload,
    SlotRow,
)

log = logging.getLogger(__name__)

OPERATION = "start"

MAX_KEYS = 100
"""How many business keys one transaction locks at most: the lock table of PostgreSQL is shared by all."""

Templates = Callable[[Plan, bool], StartTemplate | None]
"""The start template of a plan, for runs that start at once or stay idle."""

_canonical = msgspec.json.Encoder(order="sorted").encode

PARTS = (
    "workflow",
    "input",
    "business key",
    "correlation id",
    "priority",
    "whether it starts now",
    "run that it repeats",
    "labels",
    "moment of its start",
    "delay of its start",
    "address of its webhook",
    "secret of its webhook",
    "step to go on from",
)
"""What people call the parts of a request."""


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """All parameters of a new run. Its fingerprint shows whether two requests are equal."""

    plan: Plan
    caller: Caller
    input: bytes = b"null"
    run_id: str = ""
    operation: str = OPERATION
    idempotency_key: str | None = None
    scope: str = ANY_CALLER
    """Whose idempotency key it is (`Access.key_scope`); of any caller, if the operation gives it."""

    business_key: str | None = None
    correlation_id: str | None = None
    priority: int | None = None
    start_now: bool = True
    start_at: int | None = None
    start_delay: int | None = None
    rerun_of: str | None = None
    labels: bytes | None = None
    asked_before: bytes | None = None
    webhook_url: str | None = None
    webhook_secret: str | None = None
    """Where the end of the run is posted, and the name of the secret that signs it; the template's by default."""

    trace: str | None = None
    """The trace that it belongs to; no part of the fingerprint, because a client that tries again has another one."""

    payload: Payload | None = None
    """The input, if `input` is a reference to it."""

    names_version: bool = True
    """False where the caller named the workflow alone: a newer version is then no other request."""

    plain_fingerprint: str = ""
    plain_fingerprint_1: str = ""
    """The fingerprints of the request before its input was sealed."""

    continuation: Continuation | None = None
    """The finished steps that it takes from the run `rerun_of`."""

    takes_slot: bool = True
    """False for a child that its parent waits for: it runs under the slot of the parent."""

    awaits_slot: bool = False
    """Whether a limit on running runs concerns it."""

    slot: SlotRow | None = None
    """The slot of the run that it was migrated from, which it takes over: held, or the place among those that wait."""

    pause: PauseRequested | None = None
    """The pause that it starts with, because its workflow is paused."""

    adopted_payloads: tuple[Payload, ...] = ()
    """The outputs of adopted steps that are kept outside their rows, as its own."""

    @property
    def is_delayed(self) -> bool:
        return self.start_at is not None or self.start_delay is not None

    @property
    def fingerprint(self) -> str:
        """What its idempotency key is kept with."""
        version = self.plan.definition.version if self.names_version else None
        return self.plain_fingerprint or fingerprint(dict(zip(PARTS, self._parts(), strict=True)), version)

    @property
    def fingerprint_1(self) -> str:
        """The same, as it was computed before it had parts: for keys of that time."""
        if self.plain_fingerprint_1:
            return self.plain_fingerprint_1
        name, given, business, correlation, priority, now, of, labels, at, delay, url, secret, start = self._parts()
        parts = (
            name,
            self.plan.definition.version,
            self.plan.digest,
            *(given, business, correlation, priority, now, of, labels),
            *((at, delay) if self.is_delayed else ()),
            *((url, secret) if url is not None else ()),
            *(() if self.continuation is None else (start,)),
        )
        return hashlib.sha256(_canonical(parts)).hexdigest()

    def _parts(self) -> tuple[Any, ...]:
        """Everything that makes another request, but for the version; `PARTS` names them."""
        return (
            self.plan.definition.name,
            msgspec.json.decode(self.input),
            self.business_key,
            self.correlation_id,
            self.priority,
            self.start_now,
            self.rerun_of,
            None if self.labels is None else msgspec.json.decode(self.labels),
            self.start_at,
            self.start_delay,
            self.webhook_url,
            self.webhook_secret,
            None if self.continuation is None else self.continuation.start or "",
        )

    def differs_from(self, earlier: IdempotencyKey) -> list[str] | None:
        """In which parts it asks for something else than the request that used its key before; None if it does not."""
        if earlier.fingerprint.startswith(FORMAT):
            return difference(earlier.fingerprint, self.fingerprint, PARTS)
        return None if earlier.fingerprint == self.fingerprint_1 else []


class Started(Answer, kw_only=False):
    """The run that a start returns; `created` is False if the idempotency key had created it before."""

    run_id: str
    created: bool


class IdleStarted(Answer, kw_only=True):
    """How a run stands that was started: queued, or paused."""

    state: RunState


class StartedHere(msgspec.Struct, frozen=True):
    """A run that its starter executes: the steps that were claimed with its creation.

    `has_more`: other steps of it may be ready.
    """

    started: Started
    claims: tuple[Claim, ...] = ()
    has_more: bool = True


class Starter:
    """Groups starts into shared transactions. One per process."""

    def __init__(self, transactor: Transactor) -> None:
        self._transactor = transactor
        self._lane: Submissions[StartRequest, Started] = Submissions(
            self._start_batch, size_bytes=input_bytes, abreast=2 if transactor.store.divides_batches else 1
        )
        self._live = self.live = transactor.plans.live
        self.quotas = QuotaKeeper(transactor.store)
        self.withdrawals = Withdrawals(transactor)
        self.limits = KnownLimits(transactor)
        self.pauses = PauseReader(transactor.monotonic)
        # A grant serves all runs that wait when it begins: the callers of a batch of starts need one, not one each.
        self._grants: SharedReads[tuple[str, str], int] = SharedReads(
            lambda key: grant_slots(transactor, [key[1]], Caller(key[0], "slots"))
        )
        self._templates: dict[tuple[int, bool], tuple[Plan, StartTemplate | None]] = {}

    async def start(self, request: StartRequest) -> Started:
        """Create a run (and start it unless it stays idle); the same idempotency key returns the same run."""
        try:
            request = await self.reduced(request)
        except Conflict:
            # A withdrawn version starts nothing; the run that the same request has created is still its answer.
            earlier = await self._made_before(accept(request))
            if earlier is None:
                raise
            return earlier
        started = await self._put(request)
        if request.awaits_slot:
            await self.grant(request)
        return started

    async def _put(self, request: StartRequest) -> Started:
        if request.caller.key is None:
            return await self._lane.put(request)
        try:
            async with self.quotas.reserve(request.caller, request.run_id) as created:
                started = await self._lane.put(request)
                created(started.run_id)
                return started
        except QuotaExceeded:
            earlier = await self._made_before(request)
            if earlier is None:
                raise
            return earlier

    async def grant(self, request: StartRequest) -> None:
        """Grant a slot to a run that was just created, if one is free. A worker does it otherwise."""
        try:
            await self._grants.new((request.caller.tenant, request.plan.definition.name))
        except StepkeepError as problem:
            log.info("the slot of run %s is left to a worker: %s", request.run_id, problem)

    async def _made_before(self, request: StartRequest) -> Started | None:
        """The run that the idempotency key of a request has created: asking again needs no place."""
        key, found = _idempotency(request), Loaded(now=0)
        if key is None:
            return None
        places = key_places(request)

        def look(loaded: Loaded) -> More | Write:
            nonlocal found
            known, found = found, loaded
            return Write() if known is loaded else More(idempotency=places)

        await self._transactor.store.change([], look)
        earlier = _earlier(request, found.idempotency)
        if earlier is None or request.differs_from(earlier) is not None:
            return None
        return Started(earlier.run_id, created=False)

    async def start_here(
        self, request: StartRequest, claimer: Claimer, unconfirmed: Callable[[Sequence[Claim]], None]
    ) -> StartedHere:
        """Create a run and, in the same transaction, claim its first steps for a worker of this process.

        The request is a reduced one. `unconfirmed` is called with claims of a commit that was never answered.
        """
        batch: StartBatch | None = None

        def make() -> StartBatch:
            nonlocal batch
            batch = StartBatch(
                [request], self.template, self._live, claims=FirstClaims(self._transactor.plans, claimer)
            )
            return batch

        try:
            batch = await self._transactor.run(make, self._unread([request]))
        except (StoreUnavailable, asyncio.CancelledError) as problem:
            if batch is not None and batch.claims is not None:
                unconfirmed(batch.claims.made)
            if not isinstance(problem, ConnectionLost):
                raise
            [started] = await self._start_together([request], again=True)
            if isinstance(started, Exception):
                raise started from problem
            return StartedHere(started)
        [answer] = batch.answers
        if not isinstance(answer, Started):
            raise answer or InvalidInput("the run was not decided on")
        assert batch.claims is not None
        self._transactor.remember(batch.claims.batch)
        if request.awaits_slot:
            await self.grant(request)
        has_more = not answer.created or batch.claims.has_more or request.awaits_slot
        return StartedHere(answer, batch.claims.made, has_more=has_more)

    async def reduced(self, request: StartRequest) -> StartRequest:
        """The request as it is decided on: checked, and with a reference instead of a large input."""
        payloads = self._transactor.payloads
        payloads.check_size("the input", request.input)
        request = accept(request)
        definition = request.plan.definition
        if is_declared(definition):
            if is_quick(definition, len(request.input)):
                check_json_input(definition, request.input)
            else:
                declared = msgspec.structs.replace(definition, steps=())
                await aside_large(request.caller.tenant, len(request.input), check_json_input, declared, request.input)
        undoes = request.continuation is not None and request.continuation.how is ContinuationKind.ROLLBACK
        if not undoes and request.operation != CONTINUE:
            # What a withdrawn version did can still be undone, and its runs go on.
            await self.withdrawals.refuse(request.caller.tenant, definition.name, definition.version)
        request = self._traced(request)
        if request.takes_slot and not undoes:
            is_limited = definition.slots is not msgspec.UNSET
            awaits = is_limited or await self.limits.concern(request.caller.tenant, definition.name)
            request = msgspec.structs.replace(request, awaits_slot=awaits) if awaits else request
        paused = await self.pauses.read(self._transactor.store, request.caller.tenant)
        if (pause := paused.at_start(definition.name, request.caller.tenant, request.run_id)) is not None:
            request = msgspec.structs.replace(request, pause=pause)
        if payloads.seal.is_on:
            # Equal inputs are sealed differently, and must be recognised as equal.
            known = (request.fingerprint, request.fingerprint_1) if request.idempotency_key is not None else ("", "")
            sealed = await asyncio.to_thread(payloads.seal.seal, request.input)
            request = msgspec.structs.replace(
                request, input=sealed, plain_fingerprint=known[0], plain_fingerprint_1=known[1]
            )
        if len(request.input) <= INLINE_INPUT_BYTES and not request.input.startswith(PREFIX):
            return request
        reference, payload = await payloads.apart(
            (request.caller.tenant, request.run_id), request.input, INLINE_INPUT_BYTES
        )
        return msgspec.structs.replace(request, input=reference, payload=payload)

    def _traced(self, request: StartRequest) -> StartRequest:
        trace = current()
        if trace is None and self._transactor.spans is not None:
            trace = str(root_of(request.run_id))
        return request if trace is None else msgspec.structs.replace(request, trace=trace)

    def batch(self, requests: list[StartRequest]) -> StartBatch:
        """Reduced starts, for a transaction that writes more than them."""
        return StartBatch(requests, self.template, self._live)

    async def start_in(self, transaction: Transaction, request: StartRequest) -> Started:
        """Create a run from a reduced request in a transaction of the caller, who commits it or rolls it back."""
        batch = StartBatch([request], self.template, self._live)
        batch.basis = Basis.USER_TRANSACTION
        wanted = request.plan.definition_id

        asked = False

        def decide(loaded: Loaded) -> More | Write:
            # Another database may have another definition under this number.
            nonlocal asked
            found = loaded.definitions.get(wanted)
            if found is None and not asked:
                asked = True
                return More(definitions=(wanted,))
            if found is None or found.digest != request.plan.digest:
                raise InvalidInput("connection= is of another database than the engine's: the workflow is not there.")
            return batch.decide(loaded)

        await transaction.change(batch.wants(), decide)
        [answer] = batch.answers
        if isinstance(answer, Started):
            return answer
        raise answer or InvalidInput("the run was not decided on")

    async def _start_batch(self, requests: list[StartRequest]) -> list[Started | Exception]:
        if sum(request.business_key is not None for request in requests) <= MAX_KEYS:
            return await all_or_each(requests, self._start_together)
        answers: list[Started | Exception] = []
        for first in range(0, len(requests), MAX_KEYS):
            answers += await all_or_each(requests[first : first + MAX_KEYS], self._start_together)
        return answers

    async def _start_together(self, requests: list[StartRequest], again: bool = False) -> list[Started | Exception]:
        def make() -> StartBatch:
            return StartBatch(requests, self.template, self._live, again=again)

        try:
            batch = await self._transactor.run(make, None if again else self._unread(requests))
        except StoreUnavailable as problem:
            if again:
                raise ConnectionLost(f"the start may have been committed before this: {problem}") from problem
            if not isinstance(problem, ConnectionLost):
                raise
            # It may have been committed. The ids are unique, so runs that exist under them are these.
            return await self._start_together(requests, again=True)
        return [answer for answer in batch.answers if answer is not None]

    def _unread(self, requests: list[StartRequest]) -> Unlocked | None:
        """Nothing is read if no key can name an existing run: one round trip instead of four."""
        now = self._transactor.clock.now()
        is_named = any(request.idempotency_key or request.business_key or request.continuation for request in requests)
        if now is None or is_named:
            return None
        return Unlocked(Basis.NEW, Loaded(now=now + self._transactor.store.clock_offset))

    def template(self, plan: Plan, start: bool) -> StartTemplate | None:
        """The start template of a plan, made once."""
        known = self._templates.get((plan.definition_id, start))
        if known is None or known[0] is not plan:
            known = self._templates[plan.definition_id, start] = (plan, start_template(plan, start=start))
        return known[1]


def input_bytes(request: StartRequest) -> int:
    """How large the input is, wherever it is kept."""
    return len(request.input if request.payload is None else request.payload.body)


def accept(request: StartRequest) -> StartRequest:
    """Refuse a version that is not active, and what cannot be stored; assign the run id."""
    definition = request.plan.definition
    if definition.dialect == "action" and definition.about.get("active") is False:
        said = f"version {definition.version} of {definition.name} is not active: no run of it may start."
        raise Conflict(f"{said} Start a version whose `active` is true.", {"workflow": definition.name})
    for name, key in (
        ("the actor", request.caller.actor),
        ("the idempotency key", request.idempotency_key),
        ("the business key", request.business_key),
        ("the correlation id", request.correlation_id),
    ):
        if key is not None:
            validate.key(name, key)
    if request.is_delayed and not request.start_now:
        raise InvalidInput(
            "a run that stays idle has no moment to start at: leave out start_now=False, or at= and delay=."
        )
    if request.start_at is not None and request.start_delay is not None:
        raise InvalidInput("give the moment of the start (at=) or its delay (delay=), not both.")
    if request.labels is not None:
        validate.labels(msgspec.json.decode(request.labels))
    check_webhook(request.webhook_url, request.webhook_secret)
    priority = request.priority
    if priority is not None and not (type(priority) is int and abs(priority) <= MAX_PRIORITY):
        raise InvalidInput(f"the priority must be a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}")
    return msgspec.structs.replace(request, run_id=request.run_id or str(uuid7()))


def for_another_run(request: StartRequest) -> StartRequest:
    """The same request for another run: that of the first one may exist by now."""
    run_id, payload = str(uuid7()), request.payload
    own = None if payload is None else msgspec.structs.replace(payload, run_id=run_id)
    return msgspec.structs.replace(request, run_id=run_id, payload=own)


class StartBatch:
    """The starts of one transaction: which are new, which exist already, which are refused.

    With `again` it also looks for runs with the ids of the requests: an earlier try may have been committed. `claims`
    claims the first steps of the new runs.
    """

    def __init__(
        self,
        requests: list[StartRequest],
        template: Templates,
        live: LivePolicies,
        *,
        again: bool = False,
        claims: FirstClaims | None = None,
    ) -> None:
        self.basis = Basis.LOCKED
        self.claims = claims
        self._requests, self._template, self._again = requests, template, again
        self._live = live
        self._looked: Loaded | None = None
        self.answers: list[Started | Exception | None] = [None] * len(requests)
        self._creates = False

    def wants(self) -> list[Want]:
        made = (
            [Want(tenant=request.caller.tenant, run_id=request.run_id) for request in self._requests]
            if self._again
            else []
        )
        return [*made, *continued_runs(self._requests)]

    def is_certain(self) -> bool:
        return self._creates

    def decide(self, loaded: Loaded) -> More | Write:
        if self._looked is not loaded:
            self._looked = loaded
            more = More(
                idempotency=tuple(sorted({place for request in self._requests for place in key_places(request)})),
                keys=tuple(
                    KeyWant(tenant=tenant, key=key, kept=True)
                    for tenant, key in sorted(
                        {(r.caller.tenant, r.business_key) for r in self._requests if r.business_key}
                    )
                ),
            )
            more = msgspec.structs.replace(more, adoptions=adopted_runs(self._requests))
            if more.idempotency or more.keys or more.adoptions:
                return more
        tenants = [request.caller.tenant for request in self._requests]
        if stale := self._live.stale(tenants, loaded):
            return More(policies=stale)
        if windows := self._live.unread_spend(tenants, loaded):
            return More(spend=windows)
        starting = Starting(loaded, self._template, self._live)
        write, lacking = starting.write, []
        for place, request in enumerate(self._requests):
            try:
                self.answers[place] = starting.start(request)
            except Missing as missing:
                lacking.append(Want(tenant=request.caller.tenant, run_id=NO_RUN, people=tuple(missing.need.people)))
            except Exception as problem:  # noqa: BLE001 - refused or broken, it is this one's alone
                self.answers[place] = problem
        if lacking:
            return More(wants=tuple(lacking))
        self._creates = bool(write.new_runs)
        if self.claims is not None:
            write.new_runs = [self.claims.added_to(new, loaded.now) for new in write.new_runs]
        return write


class FirstClaims:
    """Claims the ready steps of a run in the transaction that creates it, for one worker."""

    def __init__(self, plans: PlanCache, claimer: Claimer) -> None:
        self._plans, self._claimer = plans, claimer
        self.batch = DecisionBatch(plans)
        self.made: tuple[Claim, ...] = ()
        self.has_more = False

    def added_to(self, new: NewRun, now: int) -> NewRun:
        """The new run as it is after its creation and the claims."""
        run, by = new.run, self._claimer
        key, plan = (run.tenant, run.id), self._plans.get(run.definition_id)
        ready = [step for step in new.steps if step.ready_at is not None and step.ready_at <= now]
        mine = [step for step in ready if step.queue in by.queues][: by.slots]
        self.has_more = len(mine) < len(ready)
        if plan is None or not mine:
            return new
        lease = by.lease or plan.definition.lease
        events = [
            StepClaimed(tenant=run.tenant, run_id=run.id, actor=by.actor, no=step.no, worker=by.worker, lease=lease)
            for step in mine
        ]
        self.batch = DecisionBatch(self._plans, events, judges=False)
        loaded = Loaded(now=now, runs={key: run}, steps={key: {step.no: step for step in new.steps}}, whole={key})
        self.batch.decide(loaded)
        decision = self.batch.decisions.get(key)
        if decision is None or decision.entry is None or not self.batch.is_certain():
            self.batch, self.has_more = DecisionBatch(self._plans), True
            return new
        self.made = tuple(claims_of(self.batch))
        changed = {step.no: step for step in decision.changed}
        return msgspec.structs.replace(
            new,
            run=decision.run,
            steps=tuple(changed.get(step.no, step) for step in new.steps),
            entries=(*new.entries, decision.entry),
        )


class Starting:
    """The runs that one transaction creates so far, with what they took: idempotency keys, business keys and the
    messages that were kept for these. `replies` has what became of the messages of a sender."""

    def __init__(self, loaded: Loaded, template: Templates, live: LivePolicies) -> None:
        self.write = Write()
        self.replies: dict[str, Reply] = {}
        self._loaded, self._template, self._live = loaded, template, live
        self._continuations = Continuations(loaded)
        self._made = dict(loaded.idempotency)
        self._held = {key: mailbox.holder for key, mailbox in loaded.mailboxes.items() if mailbox.holder is not None}
        self._kept = {
            key: [one for one in mailbox.kept if one.is_kept(loaded.now)] for key, mailbox in loaded.mailboxes.items()
        }

    def start(self, request: StartRequest, messages: Sequence[MessageArrived] = ()) -> Started:
        """Create the run, unless it exists or may not; then pause it if its workflow is paused, and deliver what was
        kept for its key, and these messages."""
        if (request.caller.tenant, request.run_id) in self._loaded.runs:
            return Started(request.run_id, created=True)
        key = _idempotency(request)
        if key is not None:
            earlier = _earlier(request, self._made)
            if earlier is not None:
                if (parts := request.differs_from(earlier)) is not None:
                    said = f" ({', '.join(parts)})" if parts else ""
                    raise KeyReused(
                        f"the idempotency key {key.key!r} was used before for run {earlier.run_id} with another body"
                        f"{said}. Use a new key for a new request, or go on with that run.",
                        {"run_id": earlier.run_id, "differs": parts},
                    )
                return Started(earlier.run_id, created=False)
        check_requesters(request.run_id, request.asked_before)
        place = None if request.business_key is None else (request.caller.tenant, request.business_key)
        if place is not None and (holder := self._held.get(place)) is not None:
            raise Conflict(
                f"run {holder} is live under the business key {request.business_key!r}; only one may be.",
                {"run_id": holder},
            )
        self._continuations.check(request)
        is_alike = not (request.is_delayed or request.continuation is not None or request.awaits_slot)
        is_alike = is_alike and not self._live.concerns_start(request.caller.tenant, request.plan)
        made_alike = self._template(request.plan, request.start_now) if is_alike else None
        created = _create(request, self._loaded, key, made_alike, self._live)
        if request.pause is not None and RUN.allows(created.run.state, RunTrigger.PAUSED):
            # What ended with its creation, rolls back or stays idle cannot be paused.
            pause = msgspec.structs.replace(request.pause, run_id=request.run_id)
            created, [reply] = self._after(request, created, [pause])
            if not isinstance(reply, Accepted):
                raise reply
        if place is not None:
            created = self._deliver(request, created, place, messages)
        self.write.new_runs.append(created)
        self._continuations.take(request, self.write)
        self.write.rows.take(rows_of(request.adopted_payloads))
        self.write.rows.take(rows_of(notices_of(created.run)))
        if request.payload is not None:
            self.write.rows.add(request.payload)
        if key is not None:
            self._made[key.scoped_key] = key
        if place is not None and created.run.state not in RUN_TERMINAL:
            self._held[place] = request.run_id
        return Started(request.run_id, created=True)

    def _deliver(
        self, request: StartRequest, created: NewRun, place: BusinessKey, messages: Sequence[MessageArrived]
    ) -> NewRun:
        kept: list[MailboxMessage] = self._kept.get(place, [])
        events = [*(kept_event(one, request.run_id) for one in kept), *messages]
        if not events:
            return created
        new, replies = self._after(request, created, events)
        self.replies = {event.id: reply for event, reply in zip(events, replies, strict=True)}
        # What the run did not take, because it ended first, stays for the next one.
        taken = {one.id for one in kept if isinstance(self.replies[one.id], Accepted)}
        self._kept[place] = [one for one in kept if one.id not in taken]
        rows = [delivered(one, request.run_id, self._loaded.now) for one in kept if one.id in taken]
        self.write.rows.take(rows_of(rows))
        return new

    def _after(
        self, request: StartRequest, created: NewRun, events: Sequence[PauseRequested | MessageArrived]
    ) -> tuple[NewRun, tuple[Reply, ...]]:
        policy = self._live.get(request.caller.tenant)
        spend = self._live.spend_of(policy, request.caller.tenant, request.plan.definition.name)
        first = with_events(created, request.plan, events, self._loaded, policy, spend)
        return first.new, first.replies


def _idempotency(request: StartRequest) -> IdempotencyKey | None:
    if request.idempotency_key is None:
        return None
    return IdempotencyKey(
        tenant=request.caller.tenant,
        operation=request.operation,
        key=request.idempotency_key,
        fingerprint=request.fingerprint,
        run_id=request.run_id,
        scope=request.scope,
    )


def key_places(request: StartRequest) -> tuple[KeyPlace, ...]:
    """Where the idempotency key of a request may be on record: in its own scope, or from before there were scopes."""
    if not request.idempotency_key:
        return ()
    place = (request.caller.tenant, request.operation, request.idempotency_key)
    return tuple((*place, scope) for scope in dict.fromkeys((request.scope, ANY_CALLER)))


def _earlier(request: StartRequest, made: Mapping[KeyPlace, IdempotencyKey]) -> IdempotencyKey | None:
    """What the idempotency key of a request has created."""
    return next((made[place] for place in key_places(request) if place in made), None)


def _create(
    request: StartRequest,
    loaded: Loaded,
    key: IdempotencyKey | None,
    template: StartTemplate | None,
    live: LivePolicies,
) -> NewRun:
    definition, labels = request.plan.definition, _labels(request)
    policy = live.get(request.caller.tenant)
    spend = live.spend_of(policy, request.caller.tenant, definition.name)
    pin = live.pin_for(request.caller.tenant, loaded.now)
    decision = _decide(request, loaded, labels, template, policy, spend, pin)
    assert decision.entry is not None
    rows = decision.rows
    rows.take(rows_of(run_webhook(request, decision.run, loaded.now)))
    rows.take(rows_of(hook_cursors(definition, decision.run, loaded.now)))
    rows.take(rows_of(adoption_rows(request.continuation, request.caller.tenant, request.run_id)))
    if (slot := _slot(request, decision.run, loaded.now)) is not None:
        rows.add(slot)
    if key is not None:
        rows.add(key)
    return NewRun(
        run=decision.run,
        details=Details(
            tenant=request.caller.tenant,
            run_id=request.run_id,
            workflow=definition.name,
            version=definition.version,
            dialect=definition.dialect,
            input=request.input,
            correlation_id=request.correlation_id or request.run_id,
            created_at=loaded.now,
            created_by=request.caller.actor,
            business_key=request.business_key,
            rerun_of=request.rerun_of,
            labels=labels,
            asked_before=request.asked_before,
            policy_revision=pin,
        ),
        steps=decision.added,
        entries=(decision.entry,),
        rows=rows,
    )


def _slot(request: StartRequest, run: Run, now: int) -> SlotRow | None:
    """The row of a run that waits for an execution slot. One that adopted all its steps needs none."""
    plan, adopted = request.plan, () if request.continuation is None else request.continuation.notes
    before = request.slot
    is_held = before is not None and before.granted_at is not None
    if not is_held and (not request.awaits_slot or not waiting_numbers(plan, adopted)):
        return None
    most = plan.definition.slots
    starts_at = request.start_at if request.start_delay is None else now + request.start_delay
    return SlotRow(
        tenant=run.tenant,
        run_id=run.id,
        workflow=plan.definition.name,
        most=None if most is msgspec.UNSET else most,
        priority=run.priority,
        asked_at=max(now, starts_at or now) if before is None else before.asked_at,
        granted_at=None if before is None else before.granted_at,
    )


def _labels(request: StartRequest) -> bytes | None:
    """The labels of the definition, and over them those of the start."""
    own: dict[str, str] = dict(request.plan.definition.labels or {})
    if request.trace is not None:
        own[LABEL] = request.trace
    if not own:
        return request.labels
    given = {} if request.labels is None else msgspec.json.decode(request.labels)
    return msgspec.json.encode({**own, **given})


def _decide(
    request: StartRequest,
    loaded: Loaded,
    labels: bytes | None,
    template: StartTemplate | None,
    policy: Policy | None,
    spend: Mapping[str, Mapping[str, float]],
    pin: int | None,
) -> Decision:
    plan, priority, now = request.plan, request.priority, loaded.now
    priority = plan.definition.priority if priority is None else priority
    if template is not None:
        return template.instantiate(
            run_id=request.run_id,
            priority=priority,
            business_key=request.business_key,
            given=request.input,
            caller=request.caller,
            now=now,
            asked_before=request.asked_before,
        )
    return create_run(
        plan,
        run_id=request.run_id,
        priority=priority,
        business_key=request.business_key,
        given=request.input,
        caller=request.caller,
        now=now,
        start=request.start_now,
        start_at=request.start_at if request.start_delay is None else now + request.start_delay,
        labels=labels,
        policy=policy,
        spend=spend,
        pin=pin,
        authorities=loaded.authorities,
        asked_before=request.asked_before,
        continuation=request.continuation,
        awaits_slot=request.awaits_slot,
    )


async def start_idle(
    transactor: Transactor,
    run_id: str,
    *,
    caller: Caller,
) -> IdleStarted:
    """Start a run that was created idle; paused, if its workflow is."""
    event = RunStarted(**requested(caller, run_id))
    pauses = await pauses_of_idle(transactor.store, [(caller.tenant, run_id)])
    if not pauses:
        return IdleStarted(**(await transactor.submit(event)).record)
    record: Mapping[str, Any] = {}
    for answer in await transactor.submit_all([event, *pauses]):
        if not isinstance(answer, Accepted):
            raise answer
        record = answer.record
    return IdleStarted(**record)
