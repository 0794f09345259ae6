"""A run as it stood after an entry of its journal: `show --at`.

States come from the journal alone, followed by the judge. An input or output is shown only if the stored bytes have the
digest that the journal had at that moment. It only reads.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from stepkeep.conformance.digests import PayloadBytes, sha256_of
from stepkeep.conformance.moment import PastRun, PastStep, follow_to
from stepkeep.evidence.collect import Collected, collect
from stepkeep.kernel.errors import NoSuchName
from stepkeep.kernel.machine.states import RunState
from stepkeep.operations.instants import instant
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.logs.log import canonical_machines, lines_of
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.run_answers import JudgeFinding, PastEntry, PastRunDetail, PastStepDetail, PastView

UNKNOWN = "the stored value does not have the digest that the journal has"


async def show_past(
    transactor: Transactor, run_id: str, *, tenant: str, seq: int | None = None, at: int | None = None
) -> PastView:
    """The run after entry `seq`, or after the last entry that is not later than `at`."""
    found = await collect(transactor, run_id, tenant=tenant)
    run = found.whole.record.run
    if seq is not None and seq > run.seq:
        raise NoSuchName(f"run {run_id} has no entry {seq}: its last one is {run.seq}.")
    plan = await plan_for(transactor, run)
    lines = (encode_line(line) for line in lines_of(found.whole, plan))
    past = follow_to(lines, canonical_machines(), seq=seq, at=at)
    if past is None:
        first = found.whole.entries[0].at if found.whole.entries else None
        raise NoSuchName(f"run {run_id} did not exist then: its first entry is of {instant(first)}.")
    return await _view(transactor, found, past)


async def _view(transactor: Transactor, found: Collected, past: PastRun) -> PastView:
    record, stored = found.whole.record, await found.payloads()
    given, unknown = _value(stored.input, past.input, transactor)
    return PastView(
        at=PastEntry(seq=past.seq, time=instant(past.at), event=past.event, actor=past.actor, last_seq=record.run.seq),
        run=PastRunDetail(
            id=record.run.id,
            workflow=found.stored.name,
            version=found.stored.version,
            state=RunState(past.state),
            since=instant(past.since),
            category=past.category,
            error=past.error,
            input=given,
            input_unknown=unknown,
        ),
        steps=[_step(step, stored, transactor) for step in past.steps],
        findings=[JudgeFinding(**msgspec.to_builtins(one)) for one in past.findings],
    )


def _step(step: PastStep, stored: PayloadBytes, transactor: Transactor) -> PastStepDetail:
    plain: dict[str, Any] = msgspec.to_builtins(step)
    plain |= {"since": instant(step.since), "due_at": instant(step.due_at), "output": None}
    if (output := step.output) is not None:
        is_own = output.fence is None
        kept = stored.steps.get(step.no) if is_own else stored.attempts.get((step.no, output.fence or 0))
        plain["output"], plain["output_unknown"] = _value(kept, output.digest, transactor)
    return PastStepDetail(**plain)


def _value(kept: bytes | None, digest: str | None, transactor: Transactor) -> tuple[Any, str | UnsetType]:
    """A stored value, if it is the one of the journal; otherwise why it is not known."""
    if kept is None or digest is None or sha256_of(kept) != digest:
        return None, UNKNOWN
    return msgspec.json.decode(transactor.payloads.seal.visible(kept)), UNSET
