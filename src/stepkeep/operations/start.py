"""Start runs: one run per (tenant, operation, idempotency key), one live run per business key, all steps inserted.

Starts are grouped like everything else. A run may be created idle and started later.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from uuid_utils import uuid7

from stepkeep.definition.run_input import check_input
from stepkeep.errors import Conflict, InvalidInput, KeyReused, Refused
from stepkeep.kernel.birth import conceive
from stepkeep.kernel.events import RunStarted
from stepkeep.kernel.plan import Plan
from stepkeep.kernel.rows import Details
from stepkeep.operations.lanes import Lane
from stepkeep.operations.transact import Transactor, again_if_contended
from stepkeep.store.protocol import IdempotencyKey, Loaded, More, NewRun, Want, Write

OPERATION = "start"
MAX_INPUT_BYTES = 1_048_576
MAX_KEY_LENGTH = 255


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that makes a run. The fingerprint of all but the run id tells whether two requests are the same."""

    plan: Plan
    tenant: str
    actor: str
    input: bytes = b"null"
    run_id: str = ""
    idempotency_key: str | None = None
    business_key: str | None = None
    correlation_id: str | None = None
    priority: int | None = None
    start_now: bool = True
    rerun_of: str | None = None
    labels: bytes | None = None

    @property
    def fingerprint(self) -> str:
        parts = (
            self.plan.definition.name,
            self.plan.definition.version,
            self.plan.digest,
            self.input.decode(),
            self.business_key,
            self.priority,
            self.start_now,
            self.rerun_of,
        )
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


class Started(msgspec.Struct, frozen=True):
    """The run that answers a start; `created` is False where the idempotency key had made it before."""

    run_id: str
    created: bool


class Starter:
    """Groups starts into shared transactions. One per process."""

    def __init__(self, transactor: Transactor) -> None:
        self._transactor = transactor
        self._lane: Lane[StartRequest, Started] = Lane(self._start_batch)

    async def start(self, request: StartRequest) -> Started:
        """Create a run (and start it unless it is to stay idle); the same idempotency key makes the same run."""
        return await self._lane.put(accept(request))

    async def _start_batch(self, requests: list[StartRequest]) -> list[Started | BaseException]:
        tries = 0

        async def once() -> list[Started | Refused]:
            nonlocal tries
            tries += 1
            batch = _Births(requests)
            # After a first try whose outcome is unknown, runs that exist already under these ids are ours.
            wants = [Want(tenant=r.tenant, run_id=r.run_id) for r in requests] if tries > 1 else []
            await self._transactor.store.change(wants, batch.think)
            return [answer for answer in batch.answers if answer is not None]

        return list(await again_if_contended(once))


def accept(request: StartRequest) -> StartRequest:
    """Refuse at the edge what cannot be stored or was not asked for; give the run its id."""
    if len(request.input) > MAX_INPUT_BYTES:
        raise InvalidInput(
            f"the input is {len(request.input)} bytes; at most {MAX_INPUT_BYTES} fit. Pass a reference instead."
        )
    if request.plan.definition.input_fields is not None:
        check_input(request.plan.definition, msgspec.json.decode(request.input))
    for name, key in (
        ("idempotency key", request.idempotency_key),
        ("business key", request.business_key),
        ("correlation id", request.correlation_id),
    ):
        if key is not None and not (0 < len(key) <= MAX_KEY_LENGTH and key.isprintable()):
            raise InvalidInput(f"the {name} must have 1 to {MAX_KEY_LENGTH} printable characters")
    return msgspec.structs.replace(request, run_id=request.run_id or str(uuid7()))


class _Births:
    """One transaction's starts: which are new, which were made before, which are refused."""

    def __init__(self, requests: list[StartRequest]) -> None:
        self._requests = requests
        self._looked: Loaded | None = None
        self.answers: list[Started | Refused | None] = [None] * len(requests)

    def think(self, loaded: Loaded) -> More | Write:
        if self._looked is not loaded:
            self._looked = loaded
            more = More(
                idempotency=tuple(
                    sorted({(r.tenant, OPERATION, r.idempotency_key) for r in self._requests if r.idempotency_key})
                ),
                business_keys=tuple(sorted({(r.tenant, r.business_key) for r in self._requests if r.business_key})),
            )
            if more.idempotency or more.business_keys:
                return more
        made = dict(loaded.idempotency)
        held = dict(loaded.business_keys)
        write = Write()
        for place, request in enumerate(self._requests):
            try:
                self.answers[place] = _answer(request, loaded, made, held, write)
            except Refused as refusal:
                self.answers[place] = refusal
        return write


def _answer(
    request: StartRequest,
    loaded: Loaded,
    made: dict[tuple[str, str, str], IdempotencyKey],
    held: dict[tuple[str, str], str],
    write: Write,
) -> Started:
    if (request.tenant, request.run_id) in loaded.runs:
        return Started(request.run_id, created=True)
    key = _idempotency(request)
    if key is not None:
        earlier = made.get((key.tenant, key.operation, key.key))
        if earlier is not None:
            if earlier.fingerprint != key.fingerprint:
                raise KeyReused(
                    f"the idempotency key {key.key!r} was used before for run {earlier.run_id} with another body. "
                    "Use a new key for a new request."
                )
            return Started(earlier.run_id, created=False)
    if request.business_key is not None:
        holder = held.get((request.tenant, request.business_key))
        if holder is not None:
            raise Conflict(
                f"run {holder} is live under the business key {request.business_key!r}; only one may be.",
                {"run_id": holder},
            )
        held[request.tenant, request.business_key] = request.run_id
    if key is not None:
        made[key.tenant, key.operation, key.key] = key
    write.new_runs.append(_bear(request, loaded.now, key))
    return Started(request.run_id, created=True)


def _idempotency(request: StartRequest) -> IdempotencyKey | None:
    if request.idempotency_key is None:
        return None
    return IdempotencyKey(
        tenant=request.tenant,
        operation=OPERATION,
        key=request.idempotency_key,
        fingerprint=request.fingerprint,
        run_id=request.run_id,
    )


def _bear(request: StartRequest, now: int, key: IdempotencyKey | None) -> NewRun:
    definition = request.plan.definition
    decision = conceive(
        request.plan,
        tenant=request.tenant,
        run_id=request.run_id,
        priority=definition.priority if request.priority is None else request.priority,
        business_key=request.business_key,
        given=request.input,
        actor=request.actor,
        now=now,
        start=request.start_now,
    )
    assert decision.entry is not None
    return NewRun(
        run=decision.run,
        details=Details(
            tenant=request.tenant,
            run_id=request.run_id,
            workflow=definition.name,
            version=definition.version,
            dialect=definition.dialect,
            input=request.input,
            correlation_id=request.correlation_id or request.run_id,
            created_at=now,
            created_by=request.actor,
            business_key=request.business_key,
            rerun_of=request.rerun_of,
            labels=request.labels,
        ),
        steps=decision.added,
        entry=decision.entry,
        outbox=decision.outbox,
        idempotency=key,
    )


async def start_idle(transactor: Transactor, run_id: str, *, tenant: str, actor: str) -> dict[str, Any]:
    """Start a run that was created idle."""
    accepted = await transactor.submit(RunStarted(tenant=tenant, run_id=run_id, actor=actor))
    return dict(accepted.record)
