"""The rows of jobs that act on many runs, as values. `store.jobs` says how they are read and written."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class JobAction(StrEnum):
    CANCEL = "cancel"
    RERUN = "rerun"
    PAUSE = "pause"
    RESUME = "resume"
    MIGRATE = "migrate"


class JobState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"


class RunOutcome(StrEnum):
    WAITING = "waiting"
    """The job has not come to it yet."""
    DONE = "done"
    UNCHANGED = "unchanged"
    """It was as asked for before."""
    REFUSED = "refused"
    """The detail says why."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job. `options` is JSON: what was asked for. `digest` is that of the request, for its idempotency key. `seq`
    grows with every claim, and `lease_until` is the time from which another worker may claim it."""

    tenant: str
    id: str
    action: JobAction
    state: JobState
    options: bytes
    created_at: int
    created_by: str
    vouched_by: str | None
    api_key: str | None
    idempotency_key: str | None
    digest: bytes
    seq: int
    lease_until: int
    holder: str | None = None
    ended_at: int | None = None
    scope: str = ""
    """Whose idempotency key it is."""


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one run of a job. `new_run_id` is the run that a rerun has made."""

    tenant: str
    job_id: str
    run_id: str
    state: RunOutcome
    detail: str | None = None
    new_run_id: str | None = None
