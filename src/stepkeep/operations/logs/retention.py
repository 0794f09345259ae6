"""Retention: archives finished runs and then deletes them, in small batches that block no other transaction for long.

Only runs in an archive on disk are deleted, unless the caller wants no archive. It can be killed at any time and run
again: runs that were archived but not deleted are archived again, with the same result. A run with a damaged journal is
evidence and stays. The engine and the command line call it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.definition.native.written import policy_of
from stepkeep.kernel.errors import InvalidInput, InvariantBroken, NotFound, Unreadable
from stepkeep.operations import validate
from stepkeep.operations.logs.archive import Archive, flaw_of, open_folder
from stepkeep.operations.pipeline.group_commit import again_if_contended
from stepkeep.operations.pipeline.maintenance import maintain
from stepkeep.operations.pipeline.payloads import has_references
from stepkeep.operations.pipeline.readable_states import readable_states
from stepkeep.operations.pipeline.start import Started
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.streams.reading import with_streams
from stepkeep.store.protocol import Store
from stepkeep.store.reading import damage_of
from stepkeep.store.records import FinishedFilter, WholeRun

BATCH = 500
MOST_FLAWS = 100


Flaw = tuple[str, str]
"""A run, and why it cannot be archived."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Which finished runs are deleted: those that match every limit that is set.

    `older_than` (microseconds) counts from a run's end; `keep` excludes the newest; `workflow` excludes all others.
    Idempotency keys outlive their runs: forever, or until `forget_keys` (microseconds) after the run was started.
    Entries of the audit log stay forever, or until `forget_audit` (microseconds); it may be the only limit. So do
    firings of triggers, or until `forget_firings`; those of kept runs stay. Jobs that have ended stay forever with
    their idempotency keys, or until `forget_jobs`.
    """

    older_than: int | None = None
    keep: int | None = None
    workflow: str | None = None
    forget_keys: int | None = None
    forget_audit: int | None = None
    forget_firings: int | None = None
    forget_jobs: int | None = None


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """Progress so far. `flawed` runs have a damaged journal and were not deleted; `kept` ones are kept longer by what
    their workflow declares."""

    found: int = 0
    kept: int = 0
    archived: int = 0
    deleted: int = 0
    keys: int = 0
    audit: int = 0
    firings: int = 0
    jobs: int = 0
    archives: tuple[str, ...] = ()
    flawed: tuple[Flaw, ...] = ()


Told = Callable[[Pruned], None]

MOST_KEPT = 2_147_483_647

DAY = 24 * 3600 * 1_000_000
"""Firings are kept at least so long: an event that is sent again meanwhile fires nothing again."""


def accept(policy: Policy) -> Policy:
    """Refuse a policy without limits, or with senseless ones."""
    limits = (policy.older_than, policy.keep, policy.forget_audit, policy.forget_firings, policy.forget_jobs)
    if all(limit is None for limit in limits):
        raise InvalidInput("say which finished runs go: those older than a time, all but the newest N, or both")
    if policy.older_than is not None and policy.older_than < 0:
        raise InvalidInput("the age of runs to delete is never negative")
    if policy.keep is not None and not (type(policy.keep) is int and 0 <= policy.keep <= MOST_KEPT):
        raise InvalidInput(f"the number of runs to keep is a whole number from 0 to {MOST_KEPT}")
    if policy.workflow is not None:
        validate.key("the workflow", policy.workflow)
    if policy.forget_firings is not None and policy.forget_firings < DAY:
        raise InvalidInput("firings are kept for at least a day (1d), so that an event sent again fires nothing again")
    return policy


def first_id_at(micros: int) -> str:
    """The lowest id of a run started at this time: run ids begin with their milliseconds.

    >>> first_id_at(1_700_000_000_000_000)
    '018bcfe5-6800-0000-0000-000000000000'
    """
    stamp = f"{max(0, micros) // 1000:012x}"
    return f"{stamp[:8]}-{stamp[8:]}-0000-0000-000000000000"


def created_at(run_id: str) -> int:
    """When a run was created, in microseconds.

    >>> created_at("018bcfe5-6800-7000-8000-000000000001")
    1700000000000000
    """
    return int(run_id.replace("-", "")[:12], 16) * 1000


async def require_kept(store: Store, started: Started, *, tenant: str) -> None:
    """Refuse to continue with a run that an idempotency key still names but that was deleted."""
    if not started.created and await store.read_run(tenant, started.run_id) is None:
        raise gone(started.run_id)


def gone(run_id: str) -> NotFound:
    """What is said of a run that an idempotency key still names but that was deleted."""
    return NotFound(
        f"run {run_id}, made before under this idempotency key, has ended and is gone: retention deleted "
        "it. Look for it in the archives, or use another key to do the work again."
    )


async def prune(
    transactor: Transactor,
    policy: Policy,
    *,
    tenant: str,
    folder: Path | None,
    dry_run: bool = False,
    batch: int = BATCH,
    told: Told = lambda pruned: None,
) -> Pruned:
    """Delete finished runs; with a `folder`, only those that are archived there."""
    accept(policy)
    chosen = await _choose(transactor, policy, tenant, batch)
    work = _Pass(transactor, tenant, folder if folder is None or dry_run else open_folder(folder), told)
    try:
        if chosen is not None:
            await _go_through(transactor, chosen, work, dry_run=dry_run)
        if policy.forget_keys is not None and not dry_run:
            await work.forget_keys(first_id_at(await transactor.store.now() - policy.forget_keys), batch)
        if policy.forget_audit is not None and not dry_run:
            await work.forget_audit(await transactor.store.now() - policy.forget_audit, batch)
        if policy.forget_firings is not None and not dry_run:
            await work.forget_firings(await transactor.store.now() - policy.forget_firings, batch)
        if policy.forget_jobs is not None and not dry_run:
            await work.forget_jobs(await transactor.store.now() - policy.forget_jobs)
    finally:
        work.close()
    if work.pruned.deleted:
        await maintain(transactor.store)
    return work.pruned


async def _choose(transactor: Transactor, policy: Policy, tenant: str, batch: int) -> FinishedFilter | None:
    """The runs that the policy selects, as a query; None if all are kept."""
    if policy.older_than is None and policy.keep is None:
        return None
    chosen = FinishedFilter(tenant=tenant, workflow=policy.workflow, limit=batch)
    if policy.older_than is not None:
        ended_by = await transactor.store.now() - policy.older_than
        # A run that started later cannot have ended by then, so the search can stop there.
        chosen = replace(chosen, ended_by=ended_by, before=first_id_at(ended_by + 1000))
    if policy.keep:
        oldest_kept = await transactor.store.find_newest_finished(tenant, policy.keep - 1, policy.workflow)
        if oldest_kept is None:
            return None
        chosen = replace(chosen, before=min(chosen.before, oldest_kept))
    return chosen


async def _go_through(transactor: Transactor, chosen: FinishedFilter, work: _Pass, *, dry_run: bool) -> None:
    while run_ids := await transactor.store.find_finished(chosen):
        free = await work.free_to_go(run_ids)
        if dry_run:
            work.count(len(free))
        elif free:
            await work.take(free, chosen.limit)
        chosen = replace(chosen, after=run_ids[-1])
    await work.finish(chosen.limit)


class _Pass:
    """One execution of a policy: collects runs into archives, and deletes the runs of sealed archives."""

    def __init__(self, transactor: Transactor, tenant: str, folder: Path | None, told: Told) -> None:
        self._plans, self._store, self._payloads = transactor.plans, transactor.store, transactor.payloads
        self._tenant, self._folder, self._told = tenant, folder, told
        self._archive: Archive | None = None
        self.pruned = Pruned()

    def count(self, found: int) -> None:
        self._report_progress(found=self.pruned.found + found)

    async def free_to_go(self, run_ids: Sequence[str]) -> Sequence[str]:
        """The runs that their workflows do not keep longer. One whose state cannot be read stays."""
        states, unreadable = await readable_states(self._store, [(self._tenant, run_id) for run_id in run_ids])
        if unreadable:
            self._flawed([(str(problem.run_id), str(problem)) for problem in unreadable])
            run_ids = [run_id for run_id in run_ids if run_id not in {problem.run_id for problem in unreadable}]
        await self._learn_all({status.definition_id for status in states.values()})
        policies = {}
        for status in states.values():
            plan = self._plans.get(status.definition_id)
            policies[status.definition_id] = None if plan is None else policy_of(plan.definition)
        now = await self._store.now() if any(policies.values()) else 0
        free = []
        for run_id in run_ids:
            known = states.get((self._tenant, run_id))
            policy = None if known is None else policies[known.definition_id]
            if known is not None and policy is not None and str(known.state) in policy.keep:
                record = await self._store.read_run(self._tenant, run_id)
                if record is not None and policy.keeps(str(known.state), record.run.ended_at or now, now):
                    continue
            free.append(run_id)
        if len(free) < len(run_ids):
            self._report_progress(kept=self.pruned.kept + len(run_ids) - len(free))
        return free

    async def take(self, run_ids: Sequence[str], batch: int) -> None:
        """Archive a batch of runs (and delete those of a sealed archive), or delete it if no archive is wanted."""
        self.count(len(run_ids))
        if self._folder is None:
            await self._delete(run_ids)
            return
        unreadable: list[Unreadable] = []
        left: Sequence[WholeRun] = await self._store.read_whole(self._tenant, run_ids, unreadable)
        if unreadable:
            self._flawed([(str(problem.run_id), str(problem)) for problem in unreadable])
        await self._learn(left)
        for some in _by_size(left):
            await self._archive_all(some, self._folder, batch)

    async def _archive_all(self, runs: Sequence[WholeRun], folder: Path, batch: int) -> None:
        try:
            left: Sequence[WholeRun] = [await self._payloads.whole(one, external=False) for one in runs]
        except Unreadable as problem:
            self._flawed([(str(problem.run_id), str(problem))])
            return
        for whole in left:
            # One at a time: its streams may be large.
            await self._archive_one(await with_streams(self._store, whole), folder, batch)

    async def _archive_one(self, whole: WholeRun, folder: Path, batch: int) -> None:
        left: Sequence[WholeRun] = (whole,)
        while left:
            left, flawed = await asyncio.to_thread(self._fill, folder, left)
            if flawed:
                self._flawed(flawed)
            if left:
                await self.finish(batch)

    async def finish(self, batch: int) -> None:
        """Seal the current archive, and delete its runs."""
        archive, self._archive = self._archive, None
        if archive is None:
            return
        try:
            sealed = await asyncio.to_thread(archive.seal, await self._store.now())
        finally:
            archive.discard()
        if sealed is None:
            return
        self._report_progress(
            archived=self.pruned.archived + len(sealed.run_ids),
            archives=(*self.pruned.archives, str(sealed.manifest)),
        )
        for place in range(0, len(sealed.run_ids), batch):
            await self._delete(sealed.run_ids[place : place + batch])

    async def forget_audit(self, before: int, batch: int) -> None:
        while gone := await again_if_contended(lambda: self._store.audit.forget(self._tenant, before, batch)):
            self._report_progress(audit=self.pruned.audit + gone)

    async def forget_firings(self, before: int, batch: int) -> None:
        forget = self._store.triggers.forget_firings
        while gone := await again_if_contended(lambda: forget(self._tenant, before, batch)):
            self._report_progress(firings=self.pruned.firings + gone)

    async def forget_jobs(self, before: int) -> None:
        # One at a time: a job has up to a hundred thousand runs.
        while gone := await again_if_contended(lambda: self._store.jobs.forget(self._tenant, before, 1)):
            self._report_progress(jobs=self.pruned.jobs + gone)

    async def forget_keys(self, before: str, batch: int) -> None:
        while forgotten := await again_if_contended(lambda: self._store.forget_keys(self._tenant, before, batch)):
            self._report_progress(keys=self.pruned.keys + forgotten)

    def close(self) -> None:
        if self._archive is not None:
            self._archive.discard()

    async def _learn(self, runs: Sequence[WholeRun]) -> None:
        """The definitions of the runs, which hold the step names."""
        await self._learn_all({whole.record.run.definition_id for whole in runs})

    async def _learn_all(self, wanted: set[int]) -> None:
        if unknown := [one for one in wanted if not self._plans.knows(one)]:
            self._plans.learn((await self._store.read_definitions(unknown)).values())

    def _fill(self, folder: Path, runs: Sequence[WholeRun]) -> tuple[Sequence[WholeRun], list[Flaw]]:
        """Add runs to the archive until it is full. Returns the runs for the next one, and the flawed ones."""
        flawed: list[Flaw] = []
        for place, whole in enumerate(runs):
            if self._archive is None:
                self._archive = Archive(folder, self._tenant)
            elif not self._archive.takes(whole):
                return runs[place:], flawed
            if (why := self._add(self._archive, whole)) is not None:
                flawed.append((whole.record.run.id, why))
        return (), flawed

    def _add(self, archive: Archive, whole: WholeRun) -> str | None:
        """Archive a run, or return why it cannot be archived."""
        made_from = whole.record.run.definition_id
        plan = self._plans.get(made_from)
        if plan is None:
            return self._plans.problem(made_from)
        if (flaw := flaw_of(whole)) is not None:
            return flaw
        if (damage := damage_of(whole)) is not None:
            return str(damage)
        try:
            archive.add(whole, plan)
        except InvariantBroken as broken:
            return str(broken)
        return None

    async def _delete(self, run_ids: Sequence[str]) -> None:
        began = time.monotonic()
        deleted = await again_if_contended(lambda: self._store.delete_runs(self._tenant, run_ids))
        self._report_progress(deleted=self.pruned.deleted + len(deleted))
        # Pause as long as the work took, so that other programs have the disk half of the time.
        await asyncio.sleep(time.monotonic() - began)

    def _flawed(self, flawed: Sequence[Flaw]) -> None:
        self._report_progress(flawed=(*self.pruned.flawed, *flawed)[:MOST_FLAWS])

    def _report_progress(self, **changes: Any) -> None:
        self.pruned = replace(self.pruned, **changes)
        self._told(self.pruned)


def _by_size(runs: Sequence[WholeRun]) -> Iterator[list[WholeRun]]:
    """The runs in order: one with large payloads alone, because these are read into memory; the others together."""
    together: list[WholeRun] = []
    for whole in runs:
        if has_references(whole):
            if together:
                yield together
            yield [whole]
            together = []
        else:
            together.append(whole)
    if together:
        yield together
