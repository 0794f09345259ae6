"""Migrates live runs to another version of their workflow, or says why they stay.

One transaction ends the run as cancelled and starts a new one under the other version, which adopts what had settled
and takes over its undo. Nothing is migrated if a finished step would mean something else, or if anything that has begun
would be lost or done twice. Many runs are migrated by a job (`jobs.py`), one by one: a process that dies leaves each
run migrated or not. The engine, the command line and the service call it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated, Any

from msgspec.structs import replace

from stepkeep.kernel.composition.child_runs import is_child
from stepkeep.kernel.composition.continuation import ContinuationKind
from stepkeep.kernel.composition.migration import deadlines, late, refusals, reopens
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.decide.draft import Missing
from stepkeep.kernel.errors import Conflict, ConnectionLost, NotFound, Unreadable
from stepkeep.kernel.machine.events import CancelRequested
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.continuation.continued import continues_of
from stepkeep.operations.continuation.going_on import ContinuationOptions, PreparedContinuation, prepare, request_for
from stepkeep.operations.definitions.publish import find_plan
from stepkeep.operations.people.people import requested
from stepkeep.operations.pipeline.batch import DecisionBatch
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.start import Started, Starter, Starting, StartRequest, key_places
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.change import Basis, Loaded, More, Want, Write
from stepkeep.store.records import RunFilter, RunRecord
from stepkeep.store.rows import KeyWant

LIVE = tuple(state for state in RunState if state not in RUN_TERMINAL)
PAGE = 200
MOST_RUNS = 10_000
"""How many live runs are examined at once."""

MOST_EXAMPLES = 20
TRIES = 5
"""How often a run is read again that moved while its migration was decided."""


class Migrated(Answer, kw_only=True):
    """The run that goes on in the place of another one."""

    run_id: str
    new_run_id: str
    version: int
    created: Annotated[bool, says("False if the run was migrated before.")]


class MigrationPreview(Answer, rename={"from_": "from"}, kw_only=True):
    """What a migration would do with a run."""

    run_id: str
    state: RunState
    from_: int
    to: int
    allowed: bool
    reasons: Annotated[list[str], says("Why the run stays with its version.")]
    adopted: list[str]
    runs: list[str]
    reopens: Annotated[list[str], says("Gates that were decided and open anew: the steps behind them differ.")]
    added: list[str]
    removed: list[str]


class RunsToMigrate(Answer, kw_only=True):
    """How many live runs of a version are in a state, and whether they could be migrated."""

    state: RunState
    version: int
    allowed: bool
    runs: int


class WhyNotMigrated(Answer, kw_only=True):
    """A reason, and how many runs stay for it."""

    reason: str
    runs: int


class GateReopened(Answer, kw_only=True):
    """A gate that opens anew, and in how many runs."""

    step: str
    runs: int


class RunNotMigrated(Answer, kw_only=True):
    """A run that would stay with its version, and why."""

    run_id: str
    state: RunState
    reasons: list[str]


class MigrationsPreview(Answer, kw_only=True):
    """Which live runs a migration concerns."""

    workflow: str
    to: int
    examined: int
    is_complete: bool
    could_migrate: int
    must_stay: int
    states: list[RunsToMigrate]
    reasons: list[WhyNotMigrated]
    reopens: list[GateReopened]
    staying: list[RunNotMigrated]


async def migrate(
    transactor: Transactor, starter: Starter, run_id: str, to: int, *, caller: Caller, reason: str = ""
) -> Migrated:
    """End a live run, and go on with it in a new one under version `to`. A Conflict has every reason against it."""
    said = validate.words("the reason", reason)
    for _ in range(TRIES):
        if (before := await _migrated_before(transactor, run_id, to, caller.tenant)) is not None:
            return before
        found = await _examine(transactor, run_id, to, caller)
        if reasons := await _reasons(transactor, found):
            # It was read after the first look: another migration may have ended it in between.
            if (before := await _migrated_before(transactor, run_id, to, caller.tenant)) is not None:
                return before
            named = f"run {run_id} cannot be migrated to version {to}"
            raise Conflict(f"{named}: {reasons[0]}.", {"reasons": reasons})
        request = await request_for(transactor, found, ContinuationOptions(how=ContinuationKind.MIGRATE), caller=caller)
        request = await starter.reduced(await _with_slot(transactor, request, run_id))
        event = CancelRequested(**requested(caller, run_id), reason=_cause(to, request.run_id, said))
        make = partial(MigrationBatch, transactor, starter, event, request, found.whole.record.run.seq)
        try:
            batch = await transactor.run(make, None)
        except ConnectionLost:
            continue  # it may have been committed: the next look tells
        if isinstance(batch.answer, Started):
            return Migrated(run_id=run_id, new_run_id=batch.answer.run_id, version=to, created=True)
        if batch.answer is not None:
            raise batch.answer
    raise Conflict(f"run {run_id} moves all the time, and could not be migrated. Pause it, and migrate it then.")


async def _with_slot(transactor: Transactor, request: StartRequest, run_id: str) -> StartRequest:
    """The request with the execution slot of the earlier run. It is queued again only if the earlier one still was.

    Its key is the id of that run: by it the costs of both count as one, and the same request finds the new run.
    """
    slot = await transactor.store.slots.read(request.caller.tenant, run_id)
    waits = slot is not None and slot.granted_at is None
    return replace(request, takes_slot=waits, slot=slot, idempotency_key=run_id)


def _cause(to: int, new_id: str, reason: str) -> str:
    said = f"migrated to version {to} as run {new_id}"
    return f"{said}: {reason}" if reason else said


async def preview(transactor: Transactor, run_id: str, to: int, *, caller: Caller) -> MigrationPreview:
    """What a migration would do with a run: what is adopted, what runs, and every reason against it. Writes nothing."""
    found = await _examine(transactor, run_id, to, caller)
    reasons = await _reasons(transactor, found)
    old = {planned.name for planned in found.old.steps}
    new = [choice.name for choice in found.choices]
    return MigrationPreview(
        run_id=run_id,
        state=found.whole.record.run.state,
        from_=found.old.definition.version,
        to=to,
        allowed=not reasons,
        reasons=reasons,
        adopted=[choice.name for choice in found.choices if choice.adopted],
        runs=[choice.name for choice in found.choices if not choice.adopted],
        reopens=[choice.name for choice in found.choices if reopens(choice, found.plan)],
        added=[name for name in new if name not in old],
        removed=sorted(old - set(new)),
    )


async def preview_all(
    transactor: Transactor, workflow: str, to: int, *, caller: Caller, of: int | None = None
) -> MigrationsPreview:
    """Which live runs of a workflow a migration concerns, by state and version, and which would stay."""
    await find_plan(transactor, workflow, to, tenant=caller.tenant)
    by_state: Counter[tuple[RunState, int, bool]] = Counter()
    reasons: Counter[str] = Counter()
    reopening: Counter[str] = Counter()
    staying: list[RunNotMigrated] = []
    examined = 0
    async for record in _live(transactor, workflow, to, caller.tenant, of):
        examined += 1
        try:
            seen = await preview(transactor, record.run.id, to, caller=caller)
            one = RunNotMigrated(run_id=seen.run_id, state=seen.state, reasons=seen.reasons)
            reopening.update(seen.reopens if seen.allowed else ())
        except NotFound:
            continue  # it ended and was deleted meanwhile
        except Unreadable as problem:
            one = RunNotMigrated(run_id=record.run.id, state=record.run.state, reasons=[str(problem)])
        by_state[one.state, record.details.version, not one.reasons] += 1
        reasons.update(one.reasons)
        if one.reasons and len(staying) < MOST_EXAMPLES:
            staying.append(one)
    could = sum(count for (_, _, allowed), count in by_state.items() if allowed)
    return MigrationsPreview(
        workflow=workflow,
        to=to,
        examined=examined,
        is_complete=examined < MOST_RUNS,
        could_migrate=could,
        must_stay=sum(by_state.values()) - could,
        states=[
            RunsToMigrate(state=state, version=version, allowed=allowed, runs=count)
            for (state, version, allowed), count in sorted(by_state.items())
        ],
        reasons=[WhyNotMigrated(reason=reason, runs=count) for reason, count in reasons.most_common(MOST_EXAMPLES)],
        reopens=[GateReopened(step=step, runs=count) for step, count in reopening.most_common(MOST_EXAMPLES)],
        staying=staying,
    )


async def live_runs(transactor: Transactor, workflow: str, to: int, *, tenant: str, of: int | None = None) -> list[str]:
    """The live runs of a workflow that are not of version `to`; with `of`, only those of that version."""
    await find_plan(transactor, workflow, to, tenant=tenant)
    return [record.run.id async for record in _live(transactor, workflow, to, tenant, of)]


# -- what is read ------------------------------------------------------------------------------------------------------
async def _live(
    transactor: Transactor, workflow: str, to: int, tenant: str, of: int | None
) -> AsyncIterator[RunRecord]:
    """Live runs of other versions, newest first. Those that a migration starts meanwhile have the version already."""
    page = RunFilter(tenant=tenant, states=LIVE, workflow=workflow, limit=PAGE)
    seen = 0
    while seen < MOST_RUNS:
        found = await transactor.store.list_runs(page, [])
        for record in found:
            if record.details.version != to and of in (None, record.details.version):
                seen += 1
                yield record
        if len(found) < PAGE:
            return
        page = replace(page, before=found[-1].run.id)


async def _examine(transactor: Transactor, run_id: str, to: int, caller: Caller) -> PreparedContinuation:
    wanted = ContinuationOptions(how=ContinuationKind.MIGRATE, version=to)
    found = await prepare(transactor, run_id, wanted, caller=caller)
    ends = deadlines(found.old, {row.no: row for row in found.whole.steps}, found.plan)
    began_at = await _began_at(transactor, found.whole.record)
    return replace(found, continuation=replace(found.continuation, began_at=began_at, deadlines=ends))


async def _began_at(transactor: Transactor, record: RunRecord) -> int | None:
    """When the work of a run began: with its start, or with that of the run that it was migrated from."""
    run = record.run
    if record.details.rerun_of is not None:
        entries = await transactor.store.read_journal(run.tenant, run.id, limit=1)
        told = open_entry(entries[0].body).causes[0].detail or {} if entries else {}
        if (earlier := (told.get("continues") or {}).get("began_at")) is not None:
            return int(earlier)
    return run.started_at


async def _reasons(transactor: Transactor, found: PreparedContinuation) -> list[str]:
    run = found.whole.record.run
    said = list(refusals(run, found.old, {row.no: row for row in found.whole.steps}, found.plan, found.choices))
    if found.plan.definition_id == found.old.definition_id:
        said.insert(0, f"it is a run of version {found.old.definition.version} already")
    if (overdue := late(found.continuation.began_at, found.plan, await transactor.store.now())) is not None:
        said.append(overdue)
    if is_child(run.id) and await transactor.store.children.read_link(run.tenant, run.id) is not None:
        said.append("another run has started it and waits for its end: migrate that one, or let this one end")
    return list(dict.fromkeys(said))


async def _migrated_before(transactor: Transactor, run_id: str, to: int, tenant: str) -> Migrated | None:
    """The run that goes on in place of this one, if it was migrated to this version before."""
    found = await transactor.store.read_run(tenant, validate.run_id(run_id))
    if found is None or found.run.state is not RunState.CANCELLED:
        return None
    for other in await transactor.store.find_reruns(tenant, run_id):
        record = await transactor.store.read_run(tenant, other)
        if record is None or record.details.version != to:
            continue
        entries = await transactor.store.read_journal(tenant, other, limit=1)
        if continues_of(run_id, entries)["as"] == ContinuationKind.MIGRATE:
            await plan_for(transactor, record.run)
            return Migrated(run_id=run_id, new_run_id=other, version=to, created=False)
    return None


# -- what is written ---------------------------------------------------------------------------------------------------
class MigrationBatch:
    """The end of one run and the start of the run that goes on in its place: both, or neither.

    `answer` is None if the run has moved since it was examined.
    """

    def __init__(
        self, transactor: Transactor, starter: Starter, event: CancelRequested, request: StartRequest, seq: int
    ) -> None:
        self.basis = Basis.LOCKED
        self.answer: Started | Exception | None = None
        self._plans, self._starter = transactor.plans, starter
        self._event, self._request = event, request
        self._seq = seq
        self._looked: Loaded | None = None
        self._deciding: DecisionBatch | None = None

    def wants(self) -> Sequence[Want]:
        return [Want(tenant=self._event.tenant, run_id=self._event.run_id, whole=True, costs=True)]

    def is_certain(self) -> bool:
        return False

    def decide(self, loaded: Loaded) -> More | Write:
        if self._looked is not loaded:
            self._looked, self._deciding = loaded, DecisionBatch(self._plans, [self._event])
            return self._look()
        assert self._deciding is not None
        tenant, live = self._event.tenant, self._starter.live
        if stale := live.stale([tenant], loaded):
            return More(policies=stale)
        if windows := live.unread_spend([tenant], loaded):
            return More(spend=windows)
        write = self._deciding.decide(loaded)
        if isinstance(write, More):
            return write
        return self._start(loaded, write, self._deciding)

    def _look(self) -> More:
        request = self._request
        references = () if request.continuation is None else request.continuation.in_order()
        key = request.business_key
        return More(
            keys=() if key is None else (KeyWant(tenant=request.caller.tenant, key=key, kept=True),),
            adoptions=tuple(sorted({(request.caller.tenant, one.run) for _, _, one in references})),
            idempotency=key_places(request),
        )

    def _start(self, loaded: Loaded, write: Write, ending: DecisionBatch) -> More | Write:
        place = (self._event.tenant, self._event.run_id)
        [reply] = ending.replies
        if not isinstance(reply, Accepted):
            self.answer = reply or Conflict("the migration was not decided on")
            return Write()
        run = loaded.runs.get(place)
        ended = ending.decisions[place].run
        if run is None or run.seq != self._seq or ended.state is not RunState.CANCELLED:
            return Write()
        starting = Starting(_after(loaded, place, ended), self._starter.template, self._starter.live)
        continuation = self._request.continuation
        assert continuation is not None
        spent = replace(continuation, costs=loaded.costs.get(place, ()))
        try:
            self.answer = starting.start(replace(self._request, continuation=spent))
        except Missing as missing:
            return More(wants=(Want(tenant=place[0], run_id="", people=tuple(missing.need.people)),))
        except Exception as problem:  # noqa: BLE001 - refused: the run stays as it is
            self.answer = problem
            return Write()
        made = starting.write
        write.new_runs += made.new_runs
        write.rows.take(made.rows)
        write.only_hot = False
        return write


def _after(loaded: Loaded, place: tuple[str, str], ended: Any) -> Loaded:
    """What the start meets: the earlier run has ended, and its business key is free."""
    boxes = {
        key: replace(box, holder=None) if box.holder == place[1] and key[0] == place[0] else box
        for key, box in loaded.mailboxes.items()
    }
    return replace(loaded, runs={**loaded.runs, place: ended}, mailboxes=boxes)
