"""The rows of sinks and of delivery cursors, as values. `store.deliveries` says how they are read and written."""

from __future__ import annotations

import msgspec


class SinkRow(msgspec.Struct, frozen=True, kw_only=True):
    """A destination of events. `takes` has the bits of `Takes`; `prefix` is the text that every matching type begins
    with; `options` is JSON, with the names of secrets and never their values."""

    tenant: str
    name: str
    kind: str
    takes: int
    prefix: str
    patterns: tuple[str, ...]
    options: bytes
    created_at: int
    created_by: str


class Delivery(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The cursor of one run and sink.

    `last` is the sequence of the last journal entry that may have something for the sink. Everything up to entry
    (`sent`, `sent_number`) is delivered. `ready_at` is the time from which a relay may claim it: None if nothing is
    left or its first entry is dead. While a relay holds it, both `ready_at` and `lease_until` are the end of the lease.
    `fence` grows with every claim. `attempts` counts failures of the first entry that is left. `target` is JSON where
    the run itself has named the destination.
    """

    tenant: str
    run_id: str
    sink: str
    takes: int
    last: int
    sent: int
    sent_number: int
    attempts: int = 0
    fence: int = 0
    ready_at: int | None = None
    lease_until: int | None = None
    holder: str | None = None
    dead_at: int | None = None
    error: str | None = None
    target: bytes | None = None
