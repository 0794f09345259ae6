"""Keeps large payloads outside their rows: puts references in before a decision, and values back after reading.

A payload over the inline limit is written in chunks, in the transaction that writes its row, or is given to a store of
the user's before it. Reading compares the digest. The kernel sees references alone. Starts, reports, completions, the
worker's inputs, results, reruns, archives and certificates call it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from msgspec.structs import replace

from stepkeep.edges.safe_text import exception_text
from stepkeep.kernel.errors import InvalidInput, StoreUnavailable, Unreadable
from stepkeep.kernel.machine.events import (
    ChildEnded,
    CompletionSignalled,
    Event,
    MessageArrived,
    StepCheckpointed,
    StepReported,
)
from stepkeep.kernel.machine.outcomes import Added, Completed, NewCall, Suspended
from stepkeep.kernel.machine.payloads import MADE_HERE, PREFIX, Reference, read_reference
from stepkeep.kernel.machine.rows import Details
from stepkeep.operations.pipeline.codec import Seal
from stepkeep.store.change import RunKey
from stepkeep.store.protocol import Store
from stepkeep.store.records import WholeRun
from stepkeep.store.rows import Payload

INLINE_BYTES = 256 * 1024
"""Outputs up to this size stay in their row."""
INLINE_INPUT_BYTES = 1024 * 1024
"""The same for the input of a run."""
INLINE_CALL_BYTES = 4 * 1024
"""The same for what stands in the note of a step: the arguments of a call of a flow."""
INLINE_CHECKPOINT_BYTES = 16 * 1024
"""The same for a checkpoint: workers read them in pages."""
MAX_PAYLOAD_BYTES = 64 * 1024 * 1024

E = TypeVar("E", bound=Event)
OutputKey = tuple[str, str, int]


@runtime_checkable
class PayloadStore(Protocol):
    """A place of the user's for large payloads. Both calls are made in a thread, and may be made again."""

    def put(self, digest: str, payload: bytes) -> None:
        """Keep this payload durably under its SHA-256 before returning."""
        ...

    def get(self, digest: str) -> bytes:
        """The payload; raises whatever it likes if there is none."""
        ...


class DirectoryStore:
    """Keeps payloads as files of a directory, each under its digest. The directory may be shared by machines.

    >>> import tempfile
    >>> store = DirectoryStore(tempfile.mkdtemp())
    >>> store.put("ab" * 32, b"[1,2]")
    >>> store.get("ab" * 32)
    b'[1,2]'
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def put(self, digest: str, payload: bytes) -> None:
        place = self._path_of(digest)
        if place.exists():
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=place.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, place)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def get(self, digest: str) -> bytes:
        return self._path_of(digest).read_bytes()

    def _path_of(self, digest: str) -> Path:
        return self._path / digest[:2] / digest


class Payloads:
    """The large payloads of one process. `external` is a store of the user's, if there is one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.external: PayloadStore | None = None
        self.seal = Seal()
        self.max_bytes = MAX_PAYLOAD_BYTES

    def use_settings_of(self, other: Payloads) -> None:
        """Keep large payloads where the other one does, and seal them in the same way."""
        self.external, self.max_bytes = other.external, other.max_bytes
        self.seal.use_codec_of(other.seal)

    # -- before a decision -------------------------------------------------------------------------------------------
    async def reduced(self, events: Iterable[E]) -> tuple[list[E], dict[int, list[Payload]]]:
        """The events with references instead of large outputs, and what is to be written with each, by its place."""
        small, payloads = list(events), dict[int, list[Payload]]()
        if self.seal.is_on:
            small = await asyncio.to_thread(lambda: [_sealed(event, self.seal.seal) for event in small])
        for place, event in enumerate(small):
            if isinstance(event, StepReported) and isinstance(event.outcome, Suspended | Added):
                small[place], payloads[place] = await self._calls_apart(event)
                continue
            if isinstance(event, StepCheckpointed):
                value, payload = await self.apart((event.tenant, event.run_id), event.value, INLINE_CHECKPOINT_BYTES)
                small[place] = replace(event, value=value)
                payloads[place] = [] if payload is None else [payload]
                continue
            output = _output_of(event)
            if output is None or not _is_large(output, INLINE_BYTES):
                continue
            reference, payload = await self.apart((event.tenant, event.run_id), output, INLINE_BYTES)
            small[place] = _with_output(event, reference)
            if payload is not None:
                payloads[place] = [payload]
        return small, payloads

    async def _calls_apart(self, event: StepReported) -> tuple[Any, list[Payload]]:
        """The report of a flow, or of a handler that adds steps, with references instead of large arguments."""
        outcome, calls, payloads = event.outcome, list[NewCall](), list[Payload]()
        assert isinstance(outcome, Suspended | Added)
        if isinstance(outcome, Added) and outcome.output is not None:
            output, payload = await self.apart((event.tenant, event.run_id), outcome.output, INLINE_BYTES)
            outcome, payloads = replace(outcome, output=output), payloads if payload is None else [payload]
        for call in outcome.calls:
            given, payload = await self.apart((event.tenant, event.run_id), call.arguments, INLINE_CALL_BYTES)
            calls.append(call if given is call.arguments else replace(call, arguments=given))
            payloads += () if payload is None else (payload,)
        return replace(event, outcome=replace(outcome, calls=tuple(calls))), payloads

    async def apart(self, key: RunKey, payload: bytes, inline_bytes: int) -> tuple[bytes, Payload | None]:
        """What stands in the row of this payload, and what is to be written beside it."""
        if not _is_large(payload, inline_bytes):
            return payload, None
        digest = await asyncio.to_thread(_digest, payload)
        if self.external is None:
            return Reference(digest, len(payload), "rows").encoded(), Payload(*key, digest, payload)
        try:
            await asyncio.to_thread(self.external.put, digest, payload)
        except Exception as problem:
            raise StoreUnavailable(f"the payload store did not keep {digest}: {exception_text(problem)}") from problem
        return Reference(digest, len(payload), "store").encoded(), None

    def check_size(self, what: str, payload: bytes) -> None:
        """Refuse a payload that is larger than this engine keeps."""
        if len(payload) > self.max_bytes:
            raise InvalidInput(
                f"{what} is {len(payload)} bytes; at most {self.max_bytes} fit. Keep it elsewhere and pass a name."
            )

    # -- after reading -----------------------------------------------------------------------------------------------
    async def value(self, tenant: str, run_id: str, payload: bytes) -> bytes:
        """The payload itself, or the value that a reference stands for, opened; raises Unreadable or PayloadSealed."""
        return self.seal.opened(await self._stored(tenant, run_id, payload))

    async def _stored(self, tenant: str, run_id: str, payload: bytes) -> bytes:
        reference = read_reference(payload)
        if reference is None:
            return payload
        if reference.kept == "rows":
            found = await self._store.read_payload(tenant, run_id, reference.digest)
        else:
            found = await self._fetched(reference)
        if found is None or await asyncio.to_thread(_digest, found) != reference.digest:
            why = "is missing" if found is None else "does not have the digest that was recorded"
            said = f"the payload of {reference.size_bytes} bytes that it refers to {why}"
            raise Unreadable("payload_chunks", reference.digest, said, tenant=tenant, run_id=run_id)
        return found

    async def _fetched(self, reference: Reference) -> bytes | None:
        if self.external is None:
            raise InvalidInput(
                f"the payload {reference.digest} is in a payload store: open the engine with payload_store=."
            )
        try:
            return await asyncio.to_thread(self.external.get, reference.digest)
        except (FileNotFoundError, KeyError):
            return None
        except Exception as problem:
            raise StoreUnavailable(f"the payload store does not answer: {exception_text(problem)}") from problem

    async def outputs(self, found: Mapping[OutputKey, bytes | None]) -> dict[OutputKey, bytes | None]:
        """Outputs that were read, with values instead of references."""
        return {
            key: None if output is None else await self.value(key[0], key[1], output) for key, output in found.items()
        }

    async def details(self, found: Mapping[RunKey, Details]) -> dict[RunKey, Details]:
        """Details that were read, with inputs instead of references."""
        return {key: await self.detail(one) for key, one in found.items()}

    async def detail(self, one: Details) -> Details:
        if not one.input.startswith(MADE_HERE):
            return one
        return replace(one, input=await self.value(one.tenant, one.run_id, one.input))

    async def whole(self, whole: WholeRun, *, external: bool = True) -> WholeRun:
        """A run that was read, with what references stand for; that in a store of the user's only if asked for. Sealed
        payloads stay sealed: the digests of the journal are theirs."""
        record, tenant, run_id = whole.record, whole.record.run.tenant, whole.record.run.id

        async def filled(payload: bytes) -> bytes:
            reference = read_reference(payload)
            is_wanted = reference is not None and (external or reference.kept == "rows")
            return await self._stored(tenant, run_id, payload) if is_wanted else payload

        if not has_references(whole):
            return whole
        attempts = [
            one if one.output is None else replace(one, output=await filled(one.output)) for one in whole.attempts
        ]
        steps = []
        for one in whole.steps:
            note = one.note
            if note is not None and note.output is not None:
                note = replace(note, output=(await filled(note.output.encode())).decode())
            steps.append(one if note is one.note else replace(one, note=note))
        details = replace(record.details, input=await filled(record.details.input))
        return replace(
            whole,
            record=replace(record, details=details),
            attempts=tuple(attempts),
            steps=tuple(steps),
            checkpoints=tuple([replace(one, value=await filled(one.value)) for one in whole.checkpoints]),
        )


def has_references(whole: WholeRun) -> bool:
    """Whether some payload of a run is kept outside its row."""
    notes = [step.note for step in whole.steps if step.note is not None]
    noted = [note.output.encode() for note in notes if note.output is not None]
    recorded = [one.value for one in whole.checkpoints]
    payloads = [whole.record.details.input, *(attempt.output for attempt in whole.attempts)]
    return any(map(read_reference, [*payloads, *noted, *recorded]))


def _digest(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


def _is_large(payload: bytes, inline_bytes: int) -> bool:
    """Whether a payload is kept apart. So is one that would be taken for a reference."""
    return len(payload) > inline_bytes or payload.startswith(PREFIX)


def _sealed(event: E, seal: Callable[[bytes], bytes]) -> E:
    """The event with every payload in it sealed."""
    match event:
        case StepReported():
            outcome = event.outcome
            emit = tuple(replace(one, payload=seal(one.payload)) for one in outcome.emit)
            if isinstance(outcome, Completed | Added) and outcome.output is not None:
                outcome = replace(outcome, output=seal(outcome.output))
            if isinstance(outcome, Suspended | Added):
                sealed = tuple(replace(one, arguments=seal(one.arguments)) for one in outcome.calls)
                outcome = replace(outcome, calls=sealed)
            return replace(event, outcome=replace(outcome, emit=emit))
        case CompletionSignalled():
            output, claim = (None if one is None else seal(one) for one in (event.output, event.claim))
            return replace(event, output=output, claim=claim)
        case ChildEnded():
            return replace(event, output=None if event.output is None else seal(event.output))
        case StepCheckpointed():
            return replace(event, value=seal(event.value))
        case MessageArrived():
            return replace(event, payload=seal(event.payload))
    return event


def _output_of(event: Event) -> bytes | None:
    if isinstance(event, StepReported):
        outcome = event.outcome
        return outcome.output if type(outcome) is Completed else None
    return event.output if isinstance(event, CompletionSignalled | ChildEnded) else None


def _with_output(event: E, output: bytes) -> E:
    if isinstance(event, StepReported):
        return replace(event, outcome=replace(event.outcome, output=output))
    return replace(event, output=output)
