"""Bugs planted in the service's side of remote workers: each is found by a test of theirs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stepkeep.definition.python import calls
from stepkeep.operations.remote import remote_work
from stepkeep.operations.remote.recorded_calls import CallReader
from stepkeep.operations.remote.remote_work import RemoteWork
from stepkeep.operations.remote.work_state import WorkState
from tests.databases import migrated_file
from tests.remote import test_remote_flows as flows
from tests.remote import test_remote_worker as suite
from tests.suites import in_proof

Plant = Callable[[pytest.MonkeyPatch], None]


def any_owner(patch: pytest.MonkeyPatch) -> None:
    """A worker is found for every key of its tenant."""

    async def found(self: RemoteWork, worker_id: str) -> Any:
        row = await self._store.find_worker(self._tenant, worker_id)
        if row is None:
            raise remote_work.NotFound(worker_id)
        return row

    patch.setattr(RemoteWork, "_worker", found)


def any_holder(patch: pytest.MonkeyPatch) -> None:
    """Every worker renews every lease."""

    async def held(self: RemoteWork, row: Any, names: Any) -> Any:
        return set(names)

    patch.setattr(RemoteWork, "_held_by", held)


def any_run(patch: pytest.MonkeyPatch) -> None:
    """Every worker reads every run of its tenant."""

    async def readable(self: RemoteWork, worker_id: str, run_ids: Any) -> Any:
        return [(self._tenant, run_id) for run_id in run_ids]

    patch.setattr(RemoteWork, "_readable", readable)


def any_capability(patch: pytest.MonkeyPatch) -> None:
    """Capabilities are taken on trust."""

    async def allowed(self: RemoteWork, words: Any) -> None:
        return

    patch.setattr(RemoteWork, "_require_capabilities", allowed)


def forgetful(patch: pytest.MonkeyPatch) -> None:
    """A repeated request is done again."""

    async def once(self: WorkState, name: Any, now: float, work: Any) -> Any:
        return await work()

    patch.setattr(WorkState, "once", once)


def no_sweep(patch: pytest.MonkeyPatch) -> None:
    """Nothing fires the timers of a tenant that has remote workers alone."""

    async def sweep(self: RemoteWork) -> None:
        return

    patch.setattr(RemoteWork, "_sweep", sweep)


def torn_pages(patch: pytest.MonkeyPatch) -> None:
    """A later page shows ends that came after the first."""
    page = CallReader.page

    async def torn(self: CallReader, claim: Any, start: int, until: int | None, value: Any) -> Any:
        return await page(self, claim, start, None, value)

    patch.setattr(CallReader, "page", torn)


def any_claim(patch: pytest.MonkeyPatch) -> None:
    """Whether the worker holds the flow is left to the kernel, which is asked after queues were made."""
    found = RemoteWork._claim_of

    async def claim_of(self: RemoteWork, row: Any, name: Any) -> Any:
        held = [one for known, one in self._state.held.items() if known[1] == name.run_id]
        return await found(self, row, name) or held[0].claim

    patch.setattr(RemoteWork, "_claim_of", claim_of)


def any_call(patch: pytest.MonkeyPatch) -> None:
    """The digest of a call is taken on trust."""
    patch.setattr(calls, "_digests", lambda asked, built: [asked.digest])


PLANTED: list[tuple[Plant, Callable[[str], Awaitable[None]]]] = [
    (any_owner, suite.test_a_worker_belongs_to_the_owner_of_its_key_and_to_its_tenant),
    (any_holder, suite.test_a_late_or_doubled_report_is_fenced_and_a_repeated_request_is_answered_again),
    (any_run, suite.test_a_late_or_doubled_report_is_fenced_and_a_repeated_request_is_answered_again),
    (any_capability, suite.test_capabilities_need_a_role_of_the_owner_and_a_registration),
    (forgetful, suite.test_a_late_or_doubled_report_is_fenced_and_a_repeated_request_is_answered_again),
    (no_sweep, suite.test_a_lease_that_ran_out_is_given_to_another_worker),
    (torn_pages, flows.test_a_plain_worker_drives_a_flow_and_reads_its_calls_in_pages),
    (any_claim, flows.test_what_no_flow_could_report_is_refused_and_changes_nothing),
    (any_call, flows.test_what_no_flow_could_report_is_refused_and_changes_nothing),
]


@pytest.mark.parametrize(
    ("plant", "found_by"), [in_proof(*one, name=one[0].__name__) if place else one for place, one in enumerate(PLANTED)]
)
async def test_a_planted_bug_is_found(
    plant: Plant, found_by: Callable[[str], Awaitable[None]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        await found_by(migrated_file(tmp_path / "planted.db"))
