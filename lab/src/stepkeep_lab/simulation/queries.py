"""The reads of the model database: what the real stores read with SQL, from tables in memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from stepkeep.kernel.decide.resources import AWAITS_RESOURCES
from stepkeep.kernel.machine.rows import Run, Step, Worker
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_WAITING, RunState, StepState, StopCause, WorkerState
from stepkeep.store.change import Loaded, Propose, RunKey, StoredDefinition
from stepkeep.store.listing import finder
from stepkeep.store.records import (
    FIRST_ID,
    Backlog,
    Due,
    FinishedFilter,
    RecentAttempt,
    RecentFailure,
    RecentRun,
    RunCounts,
    RunFilter,
    RunRecord,
    Searched,
    WholeRun,
    Words,
    WorkerReport,
)
from stepkeep.store.rows import MailboxMessage
from stepkeep_lab.simulation.tables import Tables


def definition(tables: Tables, tenant: str, name: str, version: int | None) -> StoredDefinition | None:
    found = [one for one in tables.definitions.values() if (one.tenant, one.name) == (tenant, name)]
    if version is not None:
        return next((one for one in found if one.version == version), None)
    return max(found, key=lambda one: one.version, default=None)


def definitions(tables: Tables, tenant: str) -> list[StoredDefinition]:
    found = [one for one in tables.definitions.values() if one.tenant == tenant]
    return sorted(found, key=lambda one: (one.name, -one.version))


def due(tables: Tables, now: int, limit: int) -> list[Due]:
    """Steps and runs whose time has come, oldest first."""
    found = [
        (step.due_at, 0, Due(step.tenant, step.run_id, step.no))
        for rows in tables.steps.values()
        for step in rows.values()
        if step.due_at is not None and step.due_at <= now and not tables.is_quarantined((step.tenant, step.run_id))
    ]
    found += [
        (run.due_at, 1, Due(run.tenant, run.id, None))
        for run in tables.runs.values()
        if run.due_at is not None and run.due_at <= now and not tables.is_quarantined((run.tenant, run.id))
    ]
    found.sort(key=lambda one: one[:2])
    return [one for _, _, one in found[:limit]]


def shares(tables: Tables, now: int, propose: Propose) -> list[RunKey]:
    """The runs of claimable steps in the order between runs, once for each of these steps."""
    if propose.run is not None:
        return [propose.run] * propose.limit if propose.run in tables.runs else []
    queues, after = frozenset(propose.queues), propose.after
    found = [
        (-step.priority, step.ready_at, step.run_id, step.no, step.tenant)
        for rows in tables.steps.values()
        for step in rows.values()
        if step.ready_at is not None
        and step.queue in queues
        and step.ready_at <= now
        and (after is None or step.ready_at >= after)
        and not tables.is_quarantined((step.tenant, step.run_id))
    ]
    found.sort()
    return [(tenant, run_id) for _, _, run_id, _, tenant in found]


def by_number(tables: Tables, now: int, propose: Propose, owners: Iterable[RunKey]) -> list[tuple[str, str, int]]:
    """The claimable steps that these shares stand for: of each run those with the lowest numbers."""
    found, taken = [], Counter[RunKey]()
    for key in owners:
        rows = sorted(tables.steps[key].values(), key=lambda step: step.no)
        ready = [row.no for row in rows if row.ready_at is not None and row.ready_at <= now]
        mine = [no for no in ready if tables.steps[key][no].queue in propose.queues]
        if taken[key] < len(mine):
            found.append((*key, mine[taken[key]]))
            taken[key] += 1
    return found


def claimable(tables: Tables, now: int, propose: Propose) -> Loaded:
    """The best of them, with their runs."""
    owners = shares(tables, now, propose)[: propose.limit]
    loaded = Loaded(now=now, proposed=by_number(tables, now, propose, owners))
    for tenant, run_id, no in loaded.proposed:
        key = (tenant, run_id)
        loaded.runs[key] = tables.runs[key]
        loaded.steps.setdefault(key, {})[no] = tables.steps[key][no]
    return loaded


def has_ready(tables: Tables, now: int, queues: Collection[int]) -> bool:
    return any(
        step.queue in queues
        and step.ready_at is not None
        and step.ready_at <= now
        and not tables.is_quarantined((step.tenant, step.run_id))
        for rows in tables.steps.values()
        for step in rows.values()
    )


def record(tables: Tables, key: RunKey) -> RunRecord | None:
    run = tables.runs.get(key)
    return None if run is None else RunRecord(run=run, details=tables.details[key])


def runs(tables: Tables, which: RunFilter) -> list[RunRecord]:
    """Newest first."""
    found = []
    for key in sorted(tables.runs, key=lambda key: key[1], reverse=True):
        run, details = tables.runs[key], tables.details[key]
        if (
            run.tenant == which.tenant
            and (not which.states or run.state in which.states)
            and which.workflow in (None, details.workflow)
            and which.business_key in (None, details.business_key)
            and which.correlation_id in (None, details.correlation_id)
            and (which.before is None or run.id < which.before)
            and (which.oldest is None or run.id >= which.oldest)
            and (finder(which) != "find_erred_runs" or run.error is not None)
        ):
            found.append(RunRecord(run=run, details=details))
    return found[: which.limit]


def searched(tables: Tables, which: RunFilter, words: Words, most: int) -> Searched:
    """The newest runs of a filter that have the words."""
    looked_at = runs(tables, replace(which, limit=most))
    found = [record for record in looked_at if _has(tables, record, words)]
    last = looked_at[-1].run.id if looked_at else None
    return Searched(records=found[: which.limit], total=len(found), looked_at=len(looked_at), last=last)


def _has(tables: Tables, record: RunRecord, words: Words) -> bool:
    run, details = record.run, record.details
    names = (run.id, details.workflow, details.business_key, details.correlation_id, details.created_by, run.error)
    parts = [*(one.encode() for one in names if one is not None), details.input, details.labels or b""]
    return (
        (words.error is None or words.error.encode() in (run.error or "").encode().lower())
        and (words.text is None or words.text.encode() in b"\n".join(parts).lower())
        and all(one in (details.labels or b"") for one in words.labels)
        and not (words.roots and tables.children.link_of(run.tenant, run.id))
    )


def counts(tables: Tables, tenant: str) -> Mapping[RunState, int]:
    return dict(Counter(run.state for run in tables.runs.values() if run.tenant == tenant))


def tally(tables: Tables, tenant: str, after: str, late_by: int, limit: int) -> RunCounts:
    """Counts of runs, each up to the limit."""
    own = [run for _, run in sorted(tables.runs.items(), reverse=True) if run.tenant == tenant]
    live = [run.state for run in own if run.ended_at is None]
    recent = [run.state for run in own if run.id > after]
    troubled = [(run.state, run.category) for run in own if run.id > after and run.cause is not None]
    steps = [step.due_at for key, rows in tables.steps.items() if key[0] == tenant for step in rows.values()]
    timers = (steps, [run.due_at for run in own])
    late = [at for some in timers for at in sorted(at for at in some if at is not None and at <= late_by)[:limit]]
    return RunCounts(
        live=dict(Counter(live[:limit])),
        recent=dict(Counter(recent[:limit])),
        troubled=dict(Counter(troubled[:limit])),
        late=len(late),
        late_since=min(late, default=None),
    )


def recent_runs(tables: Tables, tenant: str, after: str, limit: int) -> list[RecentRun]:
    """Newest first."""
    own = [run for _, run in sorted(tables.runs.items(), reverse=True) if run.tenant == tenant and run.id > after]
    return [
        RecentRun(run.id, run.definition_id, run.state, run.category, run.started_at, run.ended_at)
        for run in own[:limit]
    ]


def sample(tables: Tables, tenant: str, after: str | None, share: int, limit: int) -> list[RecentRun]:
    """Of all runs after an id, or of the unfinished ones."""
    found = recent_runs(tables, tenant, after or FIRST_ID, len(tables.runs))
    newest = [one for one in found if after is not None or one.ended_at is None][:limit]
    return [one for one in newest if int(one.id[-2:], 16) < share]


def recent_attempts(tables: Tables, tenant: str, runs: Collection[str]) -> list[RecentAttempt]:
    """Newest run first."""
    return [
        RecentAttempt(run_id, one.no, one.state, one.ended_at - one.started_at)
        for run_id in sorted(set(runs), reverse=True)
        for _, one in sorted(tables.attempts.get((tenant, run_id), {}).items())
    ]


def failures(tables: Tables, tenant: str, after: str) -> list[RecentFailure]:
    """Newest first, each with the step that failed first."""
    found = []
    for _, run in sorted(tables.runs.items(), reverse=True):
        if run.tenant != tenant or run.id <= after or run.error is None or run.cause in (None, StopCause.CANCEL):
            continue
        failed = [one for one in tables.steps[tenant, run.id].values() if one.state is StepState.FAILED]
        step = min(failed, key=lambda one: one.settled or 0, default=None)
        category = (step and step.category) or run.category
        error = (step and step.error) or run.error
        no = None if step is None else step.no
        call = step.note.call.name if step and step.note and step.note.call else None
        found.append(RecentFailure(run.id, run.definition_id, run.state, no, call, category, error, run.ended_at))
    return found


def backlog(tables: Tables, queues: Collection[int], limit: int) -> list[Backlog]:
    ready: dict[int, list[int]] = defaultdict(list)
    for rows in tables.steps.values():
        for step in rows.values():
            if step.ready_at is not None and step.ready_at < AWAITS_RESOURCES and step.queue in queues:
                ready[step.queue].append(step.ready_at)
    return [Backlog(queue, min(len(times), limit), min(times)) for queue, times in sorted(ready.items())]


def reports(tables: Tables, tenant: str, newest: int) -> list[WorkerReport]:
    numbers = sorted(no for owner, no in tables.reports if owner == tenant)
    living = {row.no for row in workers(tables, tenant, live_only=True)}
    return [tables.reports[tenant, no] for no in numbers if no in living or no in numbers[-newest:]]


def use(tables: Tables, tenant: str, kind: str, most: int) -> tuple[int, int]:
    people = tables.people
    rows: dict[str, list[bytes]] = {
        "messages": [
            one.payload for key, one in tables.mailbox.items() if key[0] == tenant and one.payload is not None
        ],
        "triggers": [one.spec for one in tables.triggers.triggers.values() if one.tenant == tenant],
        "definitions": [one.document for one in tables.definitions.values() if one.tenant == tenant]
        + [one.document for key, one in tables.schemas.items() if key[0] == tenant],
        "settings": [one.document for key, found in tables.settings.items() if key[0] == tenant for one in found]
        + [one.document for one in tables.policies.get(tenant, ())],
        "people": [
            b""
            for found in (people.principals, people.memberships, people.delegations, people.keys)
            for key in found
            if key[0] == tenant
        ],
        "streams": [one.body.encode() for key, rows in tables.streams.rows.items() if key[0] == tenant for one in rows],
    }
    counted = rows[kind][:most]
    return len(counted), sum(map(len, counted))


def stuck(tables: Tables) -> list[RunKey]:
    """Promise 6 as a query: unfinished runs that nothing will ever move."""
    return sorted(
        key
        for key, run in tables.runs.items()
        if _is_stuck(run, tables.steps[key])
        and not tables.is_quarantined(key)
        and not (run.state is RunState.QUEUED and tables.slots.waits(key))
    )


def _is_stuck(run: Run, rows: Mapping[int, Step]) -> bool:
    if run.state in RUN_TERMINAL or run.state in (RunState.IDLE, RunState.PAUSED):
        return False
    if run.state is RunState.STOPPING and run.due_at is not None:
        return False
    return not any(
        row.ready_at is not None or row.due_at is not None or row.state in STEP_WAITING for row in rows.values()
    )


def finished(tables: Tables, which: FinishedFilter, *, also_kept: bool = False) -> list[str]:
    """Oldest first."""
    found = [
        run.id
        for key, run in tables.runs.items()
        if run.tenant == which.tenant
        and run.ended_at is not None
        and run.ended_at <= which.ended_by
        and which.after < run.id < which.before
        and which.workflow in (None, tables.details[key].workflow)
        and (also_kept or tables.may_go(key))
    ]
    return sorted(found)[: which.limit]


def whole_runs(tables: Tables, tenant: str, run_ids: Iterable[str]) -> list[WholeRun]:
    """In the order asked for."""
    keys = [(tenant, run_id) for run_id in dict.fromkeys(run_ids)]
    return [
        WholeRun(
            record=RunRecord(run=tables.runs[key], details=tables.details[key]),
            steps=tuple(row for _, row in sorted(tables.steps[key].items())),
            attempts=tuple(row for _, row in sorted(tables.attempts[key].items())),
            entries=tuple(row for _, row in sorted(tables.journal[key].items())),
            messages=tuple(sorted(tables.messages[key].values(), key=lambda message: message.number)),
            outbox=tuple(row for _, row in sorted(tables.outbox[key].items())),
            gates=tuple(row for _, row in sorted(tables.gates[key].items())),
            votes=tuple(tables.votes_of(key)),
            checkpoints=tuple(tables.checkpoints_of(key)),
        )
        for key in keys
        if key in tables.runs
    ]


def workers(tables: Tables, tenant: str, live_only: bool) -> list[Worker]:
    return [
        row
        for _, row in sorted(tables.workers.items())
        if row.tenant == tenant and not (live_only and row.state is WorkerState.SHUTDOWN)
    ]


def silent(tables: Tables, before: int) -> list[Worker]:
    """Not shut down, and not heard since; longest silence first."""
    found = [row for row in tables.workers.values() if row.state is not WorkerState.SHUTDOWN and row.heard_at <= before]
    return sorted(found, key=lambda row: (row.heard_at, row.no))


def mailbox(tables: Tables, tenant: str, key: str | None, after: tuple[str, int, str]) -> list[MailboxMessage]:
    """Messages that are kept, in the order of key, number and id, after a given one."""
    start = after if key is None else (key, *after[1:])
    found = [
        one
        for one in tables.mailbox.values()
        if one.tenant == tenant and one.payload is not None and key in (None, one.key)
    ]
    ordered = sorted(found, key=lambda one: (one.key, one.number, one.id))
    return [one for one in ordered if (one.key, one.number, one.id) > start]
