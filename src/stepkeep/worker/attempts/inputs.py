"""Reads what jobs need before they run: details of the run, outputs of earlier steps, states for rules, secrets,
the allow list of the tenant.

A whole batch is read in one or two reads, and only what its steps ask for. Immutable data is kept in small caches, so
that the next step of the same run mostly needs no read. Of outputs, only those are cached that some step was seen to
read.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence

from stepkeep.kernel.machine.outcomes import Completed, Outcome
from stepkeep.kernel.machine.payloads import MADE_HERE
from stepkeep.kernel.machine.rows import Details
from stepkeep.kernel.machine.states import StepState
from stepkeep.operations.people.network import allow_list
from stepkeep.operations.pipeline.payloads import Payloads
from stepkeep.operations.remote.recorded_calls import CallReader
from stepkeep.store.change import Loaded, RunKey
from stepkeep.store.protocol import Store
from stepkeep.worker.attempts.executor import Job
from stepkeep.worker.attempts.secrets import SecretReader
from stepkeep.worker.cache import Cache
from stepkeep.worker.flows.calls import Recorded
from stepkeep.worker.flows.keeper import FlowKeeper
from stepkeep.worker.forks import end_copy

BUDGET = 16 * 1024 * 1024
FETCH_SECONDS = 30.0

OutputKey = tuple[str, str, int]


class Inputs:
    """Reads data for jobs, and caches it."""

    def __init__(
        self,
        store: Store,
        payloads: Payloads,
        secrets: SecretReader,
        *,
        calls: CallReader | None = None,
        budget: int = BUDGET,
    ) -> None:
        self._store, self._payloads, self._secrets = store, payloads, secrets
        self._calls = calls or CallReader(store, payloads)
        self._details: Cache[RunKey, Details] = Cache(budget=budget)
        self._outputs: Cache[OutputKey, tuple[bytes | None]] = Cache(budget=budget)
        self._read: set[tuple[int, int]] = set()
        self._needs_details: set[tuple[int, int]] = set()
        """The steps of definitions whose jobs were seen to need the details of their run."""
        self._coming: dict[RunKey, asyncio.Task[dict[RunKey, Details]]] = {}
        """The details that are read while their steps are being claimed."""
        self.flows = FlowKeeper()
        self._home: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()

    def open(self) -> None:
        """Bind to the running event loop, on which all reads are made."""
        self._home, self._pid = asyncio.get_running_loop(), os.getpid()

    def expect(self, loaded: Loaded) -> None:
        """These steps are about to be claimed: read the details that their jobs will need meanwhile."""
        runs = {
            (tenant, run_id): None
            for tenant, run_id, no in loaded.proposed
            if (key := (tenant, run_id)) not in self._details
            and key not in self._coming
            and (loaded.runs[key].definition_id, no) in self._needs_details
        }
        if runs:
            reading = asyncio.get_running_loop().create_task(self._read_details(list(runs)))
            self._coming |= dict.fromkeys(runs, reading)
            reading.add_done_callback(lambda done: self._arrived(done, runs))

    def _arrived(self, reading: asyncio.Task[dict[RunKey, Details]], runs: Iterable[RunKey]) -> None:
        for key in runs:
            del self._coming[key]
        # A read that failed is made again for its jobs, and tells them then.
        if not reading.cancelled() and reading.exception() is None:
            self._keep(reading.result())

    async def _read_details(self, runs: list[RunKey]) -> dict[RunKey, Details]:
        return await self._payloads.details(await self._store.read_details(runs))

    def _keep(self, details: Mapping[RunKey, Details]) -> None:
        for key, found in details.items():
            self._details.put(key, found, len(found.input))

    def fill(self, jobs: Sequence[Job]) -> list[Job]:
        """Fill jobs from the caches; returns the jobs that still lack something."""
        return [
            job
            for job in jobs
            if (job.prepared.needs_anything or job.loaded.checks_seal or job.tracing.is_traced) and not self._fill(job)
        ]

    def remember(self, job: Job, outcome: Outcome) -> None:
        """A step succeeded: cache its output for later steps, if any step has ever asked for it."""
        claim = job.claim
        if (claim.plan.definition_id, claim.step.no) not in self._read:
            return
        output = outcome.output if isinstance(outcome, Completed) else None
        if job.own_output is not None:
            output = job.own_output[0]
        elif not isinstance(outcome, Completed):
            return
        self._outputs.put((claim.tenant, claim.run_id, claim.step.no), (output,), len(output or b""))

    async def load(self, jobs: Sequence[Job]) -> None:
        """Read what these jobs lack, and fill them. Raises MissingSecret."""
        for job in jobs:
            if job.prepared.needs_secrets:
                job.loaded.secrets = await self._secrets.read(job.prepared.needs_secrets)
        # Not cached: an entry that the operator removed must not count for the next request.
        lists = {
            tenant: await allow_list(self._store, tenant)
            for tenant in {job.claim.tenant for job in jobs if job.prepared.needs_network}
        }
        for job in jobs:
            call = job.claim.planned.call
            if call is not None and job.loaded.arguments is None:
                given = call.arguments.encode()
                job.loaded.arguments = await self._payloads.value(job.claim.tenant, job.claim.run_id, given)
            if job.prepared.is_flow and not self.flows.fill(job):
                await self._read_calls(job)
        for job in jobs:
            if job.prepared.needs_network:
                job.loaded.allowed = lists[job.claim.tenant]
        asking = [job for job in jobs if job.needs_details]
        self._needs_details.update((job.claim.plan.definition_id, job.claim.step.no) for job in asking)
        keys = {(job.claim.tenant, job.claim.run_id): None for job in asking}
        if coming := {self._coming[key] for key in keys if key in self._coming}:
            await asyncio.wait(coming)
        runs = [key for key in keys if key not in self._details]
        wants = {want: None for job in jobs for want in self._wanted(job) if want not in self._outputs}
        details = await self._read_details(runs) if runs else {}
        outputs = await self._payloads.outputs(await self._store.read_outputs(list(wants))) if wants else {}
        self._keep(details)
        for job in jobs:
            await self._give(job, details, outputs)
        # Only now: a new cache entry may drop an earlier one, but the jobs already have their values.
        for want, output in outputs.items():
            if output is not None:
                self._outputs.put(want, (output,), len(output))

    def fetch(self, job: Job, name: str) -> bytes | None:
        """Read one output for a running handler, in the handler's thread; blocks until it is read."""
        no = job.claim.plan.number_for(job.claim.planned, name)
        want = (job.claim.tenant, job.claim.run_id, no)
        self._read.add((job.claim.plan.definition_id, no))
        # In a forked copy of the worker that loop does not run.
        end_copy(self._pid)
        home = self._home
        assert home is not None, "the worker does not run"
        read = asyncio.run_coroutine_threadsafe(self._read_one(want), home)
        return read.result(FETCH_SECONDS)

    async def _read_one(self, want: OutputKey) -> bytes | None:
        known = self._outputs.get(want)
        if known is not None:
            return known[0]
        return (await self._payloads.outputs(await self._store.read_outputs([want]))).get(want)

    def _fill(self, job: Job) -> bool:
        prepared = job.prepared
        if not self._fill_call(job) or not self._fill_flow(job):
            return False
        if (
            prepared.needs_states
            or (prepared.needs_secrets and job.loaded.secrets is None)
            or (prepared.needs_network and job.loaded.allowed is None)
        ):
            return False
        if job.needs_details and job.loaded.details is None:
            job.loaded.details = self._details.get((job.claim.tenant, job.claim.run_id))
            if job.loaded.details is None:
                return False
        if prepared.needs_outputs:
            outputs = {}
            for name, no in prepared.needs_outputs:
                known = self._at_hand(job, no)
                if known is None:
                    self._read.update((job.claim.plan.definition_id, number) for _, number in prepared.needs_outputs)
                    return False
                outputs[name] = known[0]
            job.loaded.outputs = outputs
        return True

    def _fill_call(self, job: Job) -> bool:
        """The arguments of a call stand in its row, unless they are large or sealed."""
        call = job.claim.planned.call
        if call is None or job.loaded.arguments is not None:
            return True
        given = call.arguments.encode()
        if given.startswith(MADE_HERE):
            return False
        job.loaded.arguments = given
        return True

    def _fill_flow(self, job: Job) -> bool:
        """A flow that is suspended here needs no read if this worker knows every end that it lacks."""
        return not job.prepared.is_flow or self.flows.fill(job)

    async def _read_calls(self, job: Job) -> None:
        """Read what is recorded of the calls of a flow, and the results of those that have ended."""
        found = await self._calls.read(job.claim)
        self.flows.give(job, [Recorded.of(one.row, one.settled, one.output, one.at) for one in found])

    def _at_hand(self, job: Job, no: int) -> tuple[bytes | None] | None:
        if no == job.claim.step.no and job.own_output is not None:
            return job.own_output
        return self._outputs.get((job.claim.tenant, job.claim.run_id, no))

    def _wanted(self, job: Job) -> list[OutputKey]:
        claim = job.claim
        return [
            (claim.tenant, claim.run_id, no)
            for _, no in job.prepared.needs_outputs
            if not (no == claim.step.no and job.own_output is not None)
        ]

    async def _give(self, job: Job, details: dict[RunKey, Details], outputs: dict[OutputKey, bytes | None]) -> None:
        claim, prepared = job.claim, job.prepared
        key = (claim.tenant, claim.run_id)
        if job.needs_details:
            job.loaded.details = job.loaded.details or details.get(key) or self._details.get(key)
        given: dict[str, bytes | None] = {}
        for name, no in prepared.needs_outputs:
            known = self._at_hand(job, no)
            given[name] = known[0] if known is not None else outputs.get((*key, no))
        job.loaded.outputs = given
        if prepared.needs_states:
            steps = await self._store.read_steps(claim.tenant, claim.run_id)
            states = {claim.plan.at(step.no).name: step.state for step in steps}
            # The step under evaluation has completed, and rules see it in that state.
            job.loaded.states = states | {claim.planned.definition.name: StepState.SUCCEEDED}
