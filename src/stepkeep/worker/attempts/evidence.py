"""Evidence of failed attempts: traceback and inputs, bounded and redacted, kept beside the record.

It costs nothing for an attempt that succeeds. It is no part of the journal: if it cannot be
written, the attempt still counts. `Attempts` takes it from outcomes and writes it after their report was accepted.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable
from typing import Any, TypedDict

import msgspec

from stepkeep.definition.expressions.scope import reference
from stepkeep.edges.own_process import variables
from stepkeep.edges.redaction import hide_secrets, secrets_of, without
from stepkeep.edges.safe_text import inert, inert_line
from stepkeep.kernel.errors import StoreError
from stepkeep.kernel.machine.outcomes import Failed, Outcome, TimedOut
from stepkeep.operations.pipeline.codec import Seal
from stepkeep.store.protocol import Store
from stepkeep.store.records import Evidence
from stepkeep.worker.attempts.executor import Job
from stepkeep.worker.attempts.results import FailedWithTraceback

log = logging.getLogger("stepkeep.worker")

MAX_INPUTS_BYTES = 4_096
MAX_LINE = 1_000

_encode = msgspec.json.Encoder().encode


class AttemptEvidence(TypedDict, total=False):
    """What is kept of an attempt: its traceback, and what its handler was given or why that is not known."""

    traceback: str
    inputs: Any
    inputs_problem: str
    inputs_cut: str
    inputs_bytes: int


class EvidenceKeeper:
    """Collects evidence when an attempt ends and writes it after its report."""

    def __init__(self, store: Store, seal: Seal) -> None:
        self._store, self._seal = store, seal

    def take(self, job: Job, outcome: Outcome) -> Outcome:
        """Note the evidence of an ended attempt; returns the outcome as the kernel knows it."""
        if not isinstance(outcome, Failed | TimedOut):
            return outcome
        found: AttemptEvidence = {}
        if isinstance(outcome, FailedWithTraceback):
            found["traceback"] = _redacted(outcome.traceback)
            outcome = outcome.without_traceback()
        found |= _inputs(job)
        if found:
            job.evidence = _encode(found)
        return outcome

    async def write(self, jobs: Iterable[Job]) -> None:
        """Write what was noted for these attempts. A failure is logged and costs the evidence alone."""
        kept = [
            Evidence(
                job.claim.tenant,
                job.claim.run_id,
                job.claim.step.no,
                job.claim.step.fence,
                self._seal.seal(job.evidence),
            )
            for job in jobs
            if job.evidence is not None
        ]
        if not kept:
            return
        try:
            await self._store.add_evidence(kept)
        except StoreError as problem:
            log.warning("the evidence of %d failed attempts is not kept: %s", len(kept), problem)


def _redacted(text: str) -> str:
    return without(text, secrets_of(variables()))


def _inputs(job: Job) -> AttemptEvidence:
    """What the handler was given, if it is small; otherwise the beginning of it. Secrets are shown as references."""
    if job.prepared.is_rules or job.prepared.planned.executor is None:
        return {}
    if job.prepared.needs_secrets:
        job = copy.copy(job)
        job.loaded.secrets = {name: reference(name) for name in job.prepared.needs_secrets}
    try:
        encoded = _encode(hide_secrets(job.prepared.render(job)))
    except Exception as problem:  # noqa: BLE001 - inputs that cannot be rendered are why the attempt failed
        return {"inputs_problem": inert_line(str(problem), limit=MAX_LINE)}
    if len(encoded) <= MAX_INPUTS_BYTES:
        return {"inputs": msgspec.json.decode(_redacted(encoded.decode()).encode())}
    cut = inert(_redacted(encoded[:MAX_INPUTS_BYTES].decode(errors="ignore")), MAX_INPUTS_BYTES)
    return {"inputs_cut": cut, "inputs_bytes": len(encoded)}
