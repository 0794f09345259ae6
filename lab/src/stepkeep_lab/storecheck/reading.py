"""Everything that can be read from a store, as values that can be compared between two stores.

Two things may differ: the numbers that a store gives to queues and definitions, and the order of timers that are due at
the same time. All else must be equal byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.definition import SECOND
from stepkeep.kernel.machine.rows import Run, Step
from stepkeep.kernel.machine.states import RunState
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.store.change import Loaded, StoredDefinition
from stepkeep.store.protocol import Store
from stepkeep.store.records import FIRST_ID, Due, FinishedFilter, RunFilter, RunRecord, WholeRun, Words

SILENCE = 30 * SECOND
CLOSELY = 3
"""This many runs of each tenant are looked at through every door."""

PLACES = range(5)
"""Numbers of steps whose outputs are asked for."""

UNFINISHED = (RunState.QUEUED, RunState.RUNNING, RunState.BLOCKED)


async def read_everything(store: Store, tenants: Sequence[str], keys: Sequence[str], turn: int = 0) -> dict[str, Any]:
    """What the store shows through every door, by name. `keys` are business keys to look for.

    All rows of all runs are read in bulk; `turn` says which few runs are looked at through the smaller doors too.
    """
    names = await queue_names(store, tenants)
    seen: dict[str, Any] = {"now": await store.now(), "stuck runs": await store.stuck_runs()}
    moments: dict[tuple[str, str, int | None], int | None] = {}
    for tenant in tenants:
        records = await store.list_runs(RunFilter(tenant=tenant))
        whole = await store.read_whole(tenant, [record.run.id for record in records])
        for one in whole:
            run = one.record.run
            moments[tenant, run.id, None] = run.due_at
            moments |= {(tenant, run.id, step.no): step.due_at for step in one.steps}
        of_tenant = {"whole runs": whole, **await _of_tenant(store, tenant, records, keys)}
        for place in range(turn, turn + CLOSELY if records else turn):
            of_tenant |= await _of_run(store, tenant, records[place % len(records)].run.id)
        seen |= {f"{tenant}: {name}": there for name, there in of_tenant.items()}
    for limit in (100, 3):
        found = await store.find_due(limit)
        seen[f"due, at most {limit}"] = [moments.get((due.tenant, due.run_id, due.no), due) for due in found]
        seen[f"twice due, at most {limit}"] = len(found) - len(set(found))
    seen["due"] = sorted(await store.find_due(100), key=_place)
    backlog = await store.read_backlog(sorted(names), 100)
    seen["backlog"] = sorted((names[one.queue], one.depth, one.oldest_at) for one in backlog)
    for limit in (100, 1):
        seen[f"silent, at most {limit}"] = await store.silent_workers(SILENCE, limit)
    return {name: plain(there, names) for name, there in seen.items()}


async def _of_tenant(store: Store, tenant: str, records: Sequence[RunRecord], keys: Sequence[str]) -> dict[str, Any]:
    ids = [record.run.id for record in records]
    seen: dict[str, Any] = {
        "definitions": await store.list_definitions(tenant),
        "settings": await store.list_settings(tenant, "network"),
        "oldest live": await store.find_oldest_live(tenant),
        "unfit": await store.find_unfit(tenant, FIRST_ID, 1000),
        "unsigned": await store.find_unsigned(tenant, "k", FIRST_ID, 1000),
        "queues": sorted(msgspec.json.encode(spec) for _, spec in await store.list_queues(tenant)),
        "runs": records,
        "unfinished runs": await store.list_runs(RunFilter(tenant=tenant, states=UNFINISHED)),
        "small runs": await store.list_runs(RunFilter(tenant=tenant, workflow="small")),
        "a page": await store.list_runs(RunFilter(tenant=tenant, before=ids[1] if len(ids) > 1 else None, limit=2)),
        "counts": {state: number for state, number in (await store.count_runs(tenant)).items() if number},
        "worded runs": [
            await store.search_runs(
                RunFilter(tenant=tenant, states=states, before=ids[1] if len(ids) > 1 else None, limit=2),
                words,
                most=5,
            )
            for states in ((), UNFINISHED)
            for words in (Words(text="small"), Words(roots=True))
        ],
        "erred runs": await store.list_runs(RunFilter(tenant=tenant, erred=True)),
        "unfinished": await store.count_unfinished(tenant, 4),
        "newest": await store.count_newest(tenant, ids[-1] if ids else FIRST_ID, 4),
        "samples": [
            [one.id for one in await store.sample_live(tenant, share=128, limit=9)],
            [one.id for one in await store.sample_recent(tenant, after=FIRST_ID, share=128, limit=9)],
        ],
        "recent runs": [
            (one.id, one.state, one.category, one.started_at, one.ended_at)
            for one in await store.read_recent_runs(tenant, after=FIRST_ID, limit=5)
        ],
        "recent attempts": [
            (one.run_id, one.no, one.state, one.taken)
            for one in await store.read_recent_attempts(tenant, ids[:5], limit=7)
        ],
        "failures": [
            (one.run_id, one.state, one.no, one.call, one.category, one.error, one.ended_at)
            for one in await store.read_failures(tenant, after=FIRST_ID, limit=5)
        ],
        "details": await store.read_details([(tenant, run) for run in ids[::2]]),
        "involved": await store.read_involved([(tenant, run) for run in ids[::2]]),
        "workers": await store.list_workers(tenant),
        "live workers": await store.list_workers(tenant, live_only=True),
        "mailbox": await store.list_mailbox(tenant),
        "other tenants": [await store.has_other_tenants(one) for one in (tenant, "", "~")],
        "quarantined": await store.list_quarantined(tenant),
        "quarantines": await store.read_quarantines(tenant),
        "the last quarantine": await store.read_quarantines(tenant, limit=1),
    }
    for workflow in (None, "small"):
        finished = await store.find_finished(FinishedFilter(tenant=tenant, workflow=workflow))
        newest = [await store.find_newest_finished(tenant, count, workflow) for count in range(3)]
        seen |= {f"finished {workflow}": finished, f"newest finished {workflow}": newest}
        if finished:
            ended_by = next(record.run.ended_at or 0 for record in records if record.run.id == finished[0])
            by_then = FinishedFilter(tenant=tenant, workflow=workflow, ended_by=ended_by, limit=2)
            between = FinishedFilter(tenant=tenant, workflow=workflow, after=finished[0], before=finished[-1])
            for some in (by_then, between):
                seen[f"finished {some}"] = await store.find_finished(some)
    seen["states"] = await store.read_states([(tenant, run) for run in ids[::2]])
    seen["results"] = await store.read_states([(tenant, run) for run in ids], {(tenant, run): PLACES for run in ids})
    for key in keys:
        seen[f"runs of {key}"] = await store.list_runs(RunFilter(tenant=tenant, business_key=key))
    for name in ("people", "small", "nothing"):
        seen[f"newest {name}"] = await store.read_definition(tenant, name, None)
    seen["outputs"] = await store.read_outputs([(tenant, run, no) for run in ids for no in PLACES])
    tail = await store.read_tail(tenant, "0")
    seen["tail"] = {(one.entry.run_id, one.entry.seq) for one in tail}
    for worker in seen["workers"]:
        seen[f"journal of {worker.id}"] = await store.read_worker_journal(tenant, worker.id)
    return seen


async def _of_run(store: Store, tenant: str, run: str) -> dict[str, Any]:
    return {
        f"run {run}": await store.read_run(tenant, run),
        f"runs with {run}": await store.list_runs(RunFilter(tenant=tenant, correlation_id=run)),
        f"steps of {run}": await store.read_steps(tenant, run),
        f"children of {run}": await store.children.read_all(tenant, run),
        f"slot of {run}": await store.slots.read(tenant, run),
        f"resources of {run}": [one for one in await store.resources.read_holds(tenant) if one.run_id == run],
        f"attempts of {run}": await store.read_attempts(tenant, run),
        f"messages of {run}": await store.read_messages(tenant, run),
        f"journal of {run}": await store.read_journal(tenant, run),
        f"journal of {run} after 1": await store.read_journal(tenant, run, after=1, limit=2),
        f"journal of {run} after 5000": await store.read_journal(tenant, run, after=5000, limit=50),
        f"outbox of {run}": await store.read_outbox(tenant, run),
        f"adopted from {run}": sorted(
            (one.run_id, one.no, one.source_step, one.owned) for one in await store.read_adoptions(tenant, [run])
        ),
        f"runs like {run}": await store.find_reruns(tenant, run),
        f"gates of {run}": await store.read_gates(tenant, run),
        f"decisions of {run}": await store.read_votes(tenant, run),
        f"checkpoints of {run}": await store.newest_checkpoints(tenant, run, 2),
        f"later checkpoints of {run}": await store.read_checkpoints(tenant, run, 0, (2, "a"), 2),
    }


async def queue_names(store: Store, tenants: Sequence[str]) -> dict[int, int]:
    """Numbers that mean the same queue on every store."""
    specs = [
        (tenant, msgspec.json.encode(spec), queue)
        for tenant in tenants
        for queue, spec in await store.list_queues(tenant)
    ]
    return {queue: place for place, (_, _, queue) in enumerate(sorted(specs), 1)}


def _place(due: Due) -> tuple[str, str, int]:
    return (due.tenant, due.run_id, -1 if due.no is None else due.no)


def plain(thing: Any, names: Mapping[int, int]) -> Any:
    """A thing as it can be compared: errors by kind and words, and without the numbers that each store gives itself."""
    if isinstance(thing, Exception):
        return (type(thing).__name__, str(thing))
    if isinstance(thing, Claim):
        return (thing.run_id, plain(thing.step, names), thing.claimed_at)
    if isinstance(thing, dict):
        return {key: plain(one, names) for key, one in thing.items()}
    if isinstance(thing, list | tuple):
        return [plain(one, names) for one in thing]
    if isinstance(thing, RunRecord):
        return (plain(thing.run, names), thing.details)
    if isinstance(thing, WholeRun):
        return [plain(getattr(thing, name), names) for name in WholeRun.__struct_fields__]
    if isinstance(thing, Run):
        return replace(thing, definition_id=0)
    if isinstance(thing, Step):
        return replace(thing, queue=names.get(thing.queue, 0))
    if isinstance(thing, StoredDefinition):
        return replace(thing, id=0, queues=tuple(names.get(queue, 0) for queue in thing.queues))
    if isinstance(thing, Loaded):
        fields = {name: getattr(thing, name) for name in Loaded.__struct_fields__ if name != "definitions"}
        return {name: plain(one, names) for name, one in fields.items()}
    return thing


def difference(model: Any, real: Any, where: str = "") -> str | None:
    """Where two plain things first differ, in words; None where they do not."""
    if model == real:
        return None
    if isinstance(model, dict) and isinstance(real, dict):
        for key in (*model, *(key for key in real if key not in model)):
            if found := difference(model.get(key, NOTHING), real.get(key, NOTHING), f"{where}{_shown(key)} "):
                return found
    if isinstance(model, list | tuple) and isinstance(real, list | tuple) and len(model) == len(real):
        for place, (one, other) in enumerate(zip(model, real, strict=True)):
            if found := difference(one, other, f"{where}[{place}] "):
                return found
    if isinstance(model, msgspec.Struct) and type(model) is type(real):
        for name in model.__struct_fields__:
            if found := difference(getattr(model, name), getattr(real, name), f"{where}{name} "):
                return found
    return f"{where or 'the answer '}is {_shown(model)} on the model and {_shown(real)} on the store"


NOTHING = "nothing"
"""What the other has and this one lacks."""


def _shown(thing: Any) -> str:
    text = thing if isinstance(thing, str) else repr(thing)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


LONGEST = 200
