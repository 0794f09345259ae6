"""How much the service takes on: bounds on what is under way, and what it knows of a database that cannot write.

A request has one place at a time, of one kind: its key is read, it is worked on, its body arrives, it waits for
something (a long poll), or it is a stream. Each kind has bounds for the process, for a tenant, and for a key or an
address without a key. So clients that wait or send slowly take no place of others. A request beyond a bound is refused:
503 for that of the process, 429 for the others, and a tenant that has many refused is told one after the other. Health
checks are not counted. `envelope` makes a seat for each request, `routing` tells whose it is; bodies, long polls and
streams move it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stepkeep.api.problems import OVERLOADED, ApiError
from stepkeep.kernel.errors import QuotaExceeded
from stepkeep.operations.pipeline.measures import SECONDS, Histogram

if TYPE_CHECKING:
    from stepkeep.metrics.families import Family


TROUBLE_SECONDS: Final = 10.0
"""For how long a process is not ready after a write that the database refused, unless a later one succeeds."""

ALWAYS: Final = frozenset({"/healthz", "/readyz", "/metrics", "/version"})
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


SHARED_TURNS: Final = 3
"""How many requests of one tenant are worked on at once while other tenants have requests."""
RESUMED_TURNS: Final = 32
"""The same for those that go on after a wait. It is larger, because fewer would make group commits smaller."""
SHARED_SECONDS: Final = 5.0
"""For how long a request of another tenant counts."""
SHARED_REST_TIMES: Final = 15.0
"""How much longer than its large work a tenant rests from it while other tenants have requests: such work has a
sixteenth of the time at most."""
MOST_SEEN: Final = 1_000
REFUSAL_SECONDS: Final = 0.01
"""Between two refusals of one tenant while other tenants have requests: clients that ask again at once would otherwise
have the event loop to themselves."""
LATEST_REFUSAL_SECONDS: Final = 5.0


class LoadBound(NamedTuple):
    """How many there may be at once."""

    process: int
    tenant: int
    key: int
    """Of a key, or of an address whose requests have none."""


# fmt: off
BOUNDS: Final[dict[str, LoadBound]] = {
    "arriving": LoadBound(10_000, 10_000, 10_000),  # requests whose key is not known yet
    "requests": LoadBound(1_000,   500,   400),  # each holds at most one body of 4 MB
    "bodies":   LoadBound(2_000, 1_000,   250),  # bodies that have not arrived
    "waits":    LoadBound(5_000, 2_000, 1_000),  # long polls
    "streams":  LoadBound(5_000, 2_000, 1_000),
    "refused":  LoadBound(2_000, 2_000, 2_000),  # requests over a bound that wait to be told; more are told at once
}
# fmt: on


class Share(NamedTuple):
    """Whose turns they are, and how many there are at once while other tenants have requests."""

    tenant: str
    most: int


class Seat:
    """The place of one request, and its turn while it is worked on."""

    def __init__(self, load: Load, address: str) -> None:
        self._load, self._kind = load, "arriving"
        self._owners: tuple[str, ...] = ("callers without a key", f"address {address}")
        self._share: Share | None = None
        self._tenant = ""
        self._has_left = False
        load.take(self._kind, ())

    async def take_turn(self, tenant: str) -> None:
        """The request is worked on, until it leaves or rests."""
        self._tenant = tenant
        await self._take(Share(tenant, SHARED_TURNS))

    def known(self, tenant: str, key: str | None) -> None:
        """The request is of this tenant and key: from now on they count."""
        self._owners = (f"tenant {tenant}", *(() if key is None else (f"key {key}",)))
        self.move("requests")

    def move(self, kind: str, *, is_bounded: bool = True) -> None:
        """The request is of another kind from now on."""
        self._load.take(kind, self._owners, is_bounded=is_bounded)
        self._leave_place()
        self._kind = kind
        if kind != "requests":
            self._end_turn()

    @asynccontextmanager
    async def moved(self, kind: str) -> AsyncIterator[None]:
        """The request is of another kind for a while, and has no turn meanwhile."""
        before, had = self._kind, self._share
        self.move(kind)
        try:
            yield
        finally:
            self.move(before, is_bounded=False)
            await self._resume(had)

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        """The request has no turn for a while."""
        had = self._share
        self._end_turn()
        try:
            yield
        finally:
            await self._resume(had)

    async def refuse(self) -> None:
        """The request is over a bound: wait until it is told so."""
        self.move("refused", is_bounded=False)
        if self._load.taken("refused") <= self._load.bounds["refused"].process:
            await asyncio.sleep(self._load.turns.refusal_in(self._tenant))

    def leave(self) -> None:
        self._has_left = True
        self._end_turn()
        self._leave_place()

    async def _resume(self, had: Share | None) -> None:
        if had is not None and not self._has_left:
            await self._take(Share(had.tenant, RESUMED_TURNS))

    async def _take(self, share: Share) -> None:
        await self._load.turns.take(share)
        self._share = share

    def _end_turn(self) -> None:
        share, self._share = self._share, None
        if share is not None:
            self._load.turns.end(share)

    def _leave_place(self) -> None:
        self._load.leave(self._kind, () if self._kind == "arriving" else self._owners)


class FairTurns:
    """How many requests of a tenant are worked on at once while other tenants have some, too. Others of it wait, in
    order: the event loop would otherwise serve all of them before the one request of another tenant."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._active: Counter[Share] = Counter()
        self._waiting: dict[Share, deque[asyncio.Future[None]]] = {}
        self._seen: OrderedDict[str, float] = OrderedDict()
        self._refused: dict[str, float] = {}

    async def take(self, share: Share) -> None:
        """Wait until there is a turn."""
        self._seen[share.tenant] = self._monotonic()
        self._seen.move_to_end(share.tenant)
        while len(self._seen) > MOST_SEEN:
            gone, _ = self._seen.popitem(last=False)
            self._refused.pop(gone, None)
        if self._is_full(share):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(share, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self.end(share)
                raise
        else:
            self._active[share] += 1

    def end(self, share: Share) -> None:
        """A request is no longer worked on: the next ones have their turn."""
        self._active[share] -= 1
        waiting = self._waiting.get(share)
        while waiting and not self._is_full(share):
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._active[share] += 1
        if not waiting:
            self._waiting.pop(share, None)
        if not self._active[share]:
            del self._active[share]

    def rest_times(self, tenant: str) -> float:
        """How many times as long as its large work took this tenant rests from it."""
        return SHARED_REST_TIMES if self._is_shared(tenant) else 0.0

    def refusal_in(self, tenant: str) -> float:
        """In how many seconds the next refusal of this tenant is told."""
        if not self._is_shared(tenant):
            return 0.0
        now = self._monotonic()
        at = max(now, self._refused.get(tenant, float("-inf")) + REFUSAL_SECONDS)
        if at > now + LATEST_REFUSAL_SECONDS:
            return LATEST_REFUSAL_SECONDS
        self._refused[tenant] = at
        return at - now

    def _is_full(self, share: Share) -> bool:
        return self._active[share] >= share.most and self._is_shared(share.tenant)

    def _is_shared(self, tenant: str) -> bool:
        """Whether another tenant had a request a short time ago."""
        other = next((seen for name, seen in reversed(self._seen.items()) if name != tenant), float("-inf"))
        return self._monotonic() - other < SHARED_SECONDS


class Load:
    """The load of one process."""

    def __init__(self, measures: HttpMeasures, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._measures, self._monotonic = measures, monotonic
        self.bounds = dict(BOUNDS)
        self.turns = FairTurns(monotonic)
        self._taken: Counter[tuple[str, str]] = Counter()
        self._refused_at: float | None = None

    def fit(self, files: int) -> None:
        """Lower the bounds to what a process with so many open files can have."""
        self.bounds = {
            kind: LoadBound(*(min(most, max(1, files // part)) for most, part in zip(bound, (4, 8, 16), strict=True)))
            for kind, bound in BOUNDS.items()
            if kind != "arriving"
        } | {"arriving": BOUNDS["arriving"]}

    def seat(self, path: str, address: str) -> Seat | None:
        """A place for a request, or ApiError; None for one that is always answered."""
        return None if path in ALWAYS else Seat(self, address)

    def taken(self, kind: str, owner: str = "") -> int:
        """How many there are, in the process or of one tenant, key or address."""
        return self._taken[kind, owner]

    def take(self, kind: str, owners: tuple[str, ...], *, is_bounded: bool = True) -> None:
        bound = self.bounds[kind]
        if is_bounded and self._taken[kind, ""] >= bound.process:
            self._measures.refused[kind] += 1
            raise ApiError(OVERLOADED, f"This process has as many {kind} under way as it takes.")
        for owner, most in zip(owners, bound[1:], strict=False):
            if is_bounded and self._taken[kind, owner] >= most:
                self._measures.refused[kind] += 1
                said = f"{owner} has {most} {kind} under way, which is all that one may have. End some, then try again."
                raise QuotaExceeded(said, kind, retry_after=1)
        for owner in ("", *owners):
            self._taken[kind, owner] += 1

    def leave(self, kind: str, owners: tuple[str, ...]) -> None:
        for owner in ("", *owners):
            self._taken[kind, owner] -= 1
            if not self._taken[kind, owner]:
                del self._taken[kind, owner]

    def answered(self, method: str, status: int) -> None:
        """A request was answered: remember whether the database could write."""
        if method in WRITES and status == 503:
            self._refused_at = self._monotonic()
        elif method in WRITES and 200 <= status < 300:
            self._refused_at = None

    @property
    def is_troubled(self) -> bool:
        """Whether the last write failed a short time ago, as it does on a database that is full or read-only."""
        return self._refused_at is not None and self._monotonic() - self._refused_at < TROUBLE_SECONDS


METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
UNROUTED: Final = "(none)"
"""In place of a route: no route has this address."""


def route_of(scope: MutableMapping[str, Any]) -> str:
    """The template of the route that took a request."""
    return getattr(scope.get("route"), "path_format", UNROUTED)


class HttpMeasures:
    """The requests of one process. `streams` counts those that are open, by kind."""

    def __init__(self, streams: Callable[[], Mapping[str, int]]) -> None:
        self._streams = streams
        self.requests: Counter[tuple[str, ...]] = Counter()
        self.seconds: dict[str, Histogram] = {}
        self.in_flight = 0
        self.refused: Counter[str] = Counter()
        self.cut = 0

    def answered(self, method: str, route: str, status: int, seconds: float, is_stream: bool) -> None:
        """A request has ended. Status 0: its connection broke before the answer began."""
        self.requests[method if method in METHODS else "(other)", route, str(status)] += 1
        if not is_stream:
            found = self.seconds.get(route)
            if found is None:
                found = self.seconds[route] = Histogram(SECONDS)
            found.observe(seconds)

    def families(self) -> list[Family]:
        """All of it."""
        from stepkeep.metrics.families import counter, gauge, histogram

        return [
            counter("stepkeep_http_requests_total", self.requests),
            histogram("stepkeep_http_request_seconds", {(route,): found for route, found in self.seconds.items()}),
            gauge("stepkeep_http_in_flight", {(): self.in_flight}),
            counter("stepkeep_http_refused_total", {(reason,): count for reason, count in self.refused.items()}),
            gauge("stepkeep_streams", {(kind,): count for kind, count in self._streams().items()}),
            counter("stepkeep_streams_cut_total", {(): self.cut}),
        ]
