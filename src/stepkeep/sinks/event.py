"""One event on its way out, its envelope (CloudEvents 1.0 in JSON), and the patterns of names that sinks take.

The id is made of run, journal sequence and number. It is the same however often the event is sent, so that a receiver
can ignore what it has already. Values only; the relay makes them, and sinks send them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

from stepkeep.kernel.errors import InvalidInput

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_encode = msgspec.json.Encoder().encode


class EventSource(StrEnum):
    """What an event is derived from. A sink takes events of one or several sources."""

    EMITTED = "emitted"
    """What a step emitted: `ctx.emit`, `emit=`."""
    DIALECT = "dialect"
    """The domain or telemetry events that the run's dialect names."""
    TRANSITIONS = "transitions"
    """Each change of state of a run or step: `run.running`, `step.failed`."""
    ENDINGS = "endings"
    """The end of a run alone: `run.succeeded`, `run.failed`."""
    WORKERS = "workers"
    """Each change of state of a worker: `worker.idle`, `worker.unresponsive`."""


class OutgoingEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of one run. `data` is encoded JSON. `at` is microseconds since 1970.

    `number` orders the events of one journal entry. `extensions` are further attributes of the envelope, whose names
    have lower-case letters and digits alone.

    >>> event = OutgoingEvent(
    ...     tenant="acme",
    ...     run_id="r-1",
    ...     seq=4,
    ...     number=0,
    ...     type="order.paid",
    ...     source=EventSource.EMITTED,
    ...     at=0,
    ...     data=b'{"total":5}',
    ...     workflow="order",
    ...     version=1,
    ...     correlation_id="c-9",
    ... )
    >>> event.id
    'r-1/4/0'
    >>> event.envelope()["time"]
    '1970-01-01T00:00:00.000000Z'
    """

    tenant: str
    run_id: str
    seq: int
    number: int
    type: str
    source: EventSource
    at: int
    data: bytes
    workflow: str
    version: int
    correlation_id: str
    extensions: Mapping[str, str] = {}
    step: str | None = None
    """The step whose transition it is."""
    worker: str | None = None
    """The worker whose transition it is; `run_id` then stands for the worker, and is no run."""

    @property
    def id(self) -> str:
        """The dedup id."""
        return f"{self.run_id}/{self.seq}/{self.number}"

    @property
    def payload(self) -> Any:
        """Its data, decoded."""
        return msgspec.json.decode(self.data)

    def envelope(self) -> Mapping[str, Any]:
        """The event as CloudEvents 1.0."""
        about = {"correlationid": self.correlation_id, "runid": self.run_id}
        if self.worker is not None:
            about = {"workerid": self.worker}
        return {
            "specversion": "1.0",
            "id": self.id,
            "source": f"/stepkeep/{self.tenant}/{self.workflow if self.worker is None else 'workers'}",
            "type": self.type,
            "subject": self.worker or self.run_id,
            "time": time_text(self.at),
            "datacontenttype": "application/json",
            "tenantid": self.tenant,
            **about,
            "sequence": f"{self.seq:020d}",
            **self.extensions,
            "data": msgspec.Raw(self.data),
        }

    def body(self) -> bytes:
        """The envelope, encoded: what most sinks send."""
        return _encode(self.envelope())


def time_text(at: int) -> str:
    """A time of the database as RFC 3339 text."""
    return (_EPOCH + timedelta(microseconds=at)).isoformat(timespec="microseconds").replace("+00:00", "Z")


MAX_PATTERN = 200
MAX_PATTERNS = 50


def check_patterns(given: Iterable[object]) -> tuple[str, ...]:
    """Patterns as they are stored: sorted, without duplicates."""
    found = sorted({_checked(one) for one in given})
    if not found:
        raise InvalidInput("a sink needs at least one pattern of event types, such as 'order.*' or '*'.")
    if len(found) > MAX_PATTERNS:
        raise InvalidInput(f"a sink has at most {MAX_PATTERNS} patterns, and not {len(found)}.")
    return tuple(found)


def _checked(one: object) -> str:
    if not isinstance(one, str) or not 0 < len(one) <= MAX_PATTERN or not one.isprintable():
        raise InvalidInput(f"a pattern of event types has 1 to {MAX_PATTERN} printable characters, as in 'order.*'.")
    return str.__str__(one)


def matches(patterns: Iterable[str], event_type: str) -> bool:
    """Whether any of the patterns matches.

    >>> matches(["order.*", "paid"], "order.sent"), matches(["order.*"], "orders")
    (True, False)
    """
    return any(_compiled(one).fullmatch(event_type) for one in patterns)


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


def prefix_of(patterns: Iterable[str]) -> str:
    """The text that every matching type begins with; empty where there is none.

    >>> prefix_of(["order.paid", "order.p*"]), prefix_of(["order.*", "*"])
    ('order.p', '')
    """
    heads = [one.split("*", 1)[0] for one in patterns]
    first, last = min(heads), max(heads)
    end = next((at for at, letter in enumerate(first) if at >= len(last) or last[at] != letter), len(first))
    return first[:end]
