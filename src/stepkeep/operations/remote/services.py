"""What a worker offers: its handlers, queues, capabilities and load, as it publishes them with each heartbeat.

It compares an offer with what a queue asks for, and decides nothing. Workers write it; `explain` and `status` read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from stepkeep.definition.expressions.scope import secrets_among
from stepkeep.definition.native.build import COMMANDS, flow_version, given_words, handlers_among, has_word
from stepkeep.definition.python.registry import kind_of
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.machine.rows import Worker
from stepkeep.kernel.machine.states import WorkerState
from stepkeep.kernel.people.authority import ANY_WORK, WorkLimits
from stepkeep.operations.pipeline.workers import HEARTBEAT, MISSED_BEATS
from stepkeep.store.records import WorkerReport

SILENCE = MISSED_BEATS * HEARTBEAT
LIVE = frozenset({WorkerState.IDLE, WorkerState.BUSY})


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """A step (by its definition and number) that a worker hands back. `handler` names its queue, or its kind."""

    definition: int
    no: int
    handler: str
    text: str


class StepProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the handler of an attempt last said about how far it is, so long before the report. `text` may be sealed."""

    run_id: str
    no: int
    fence: int
    ago_us: int
    fraction: float | None = None
    text: msgspec.Raw


class UsageWindow(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a worker was used in the last `seconds`, or in `measured` seconds if it is younger.

    `busy` is the share of time in which it held an attempt, `slots` how many it held on average.
    """

    seconds: int
    measured: float
    busy: float
    slots: float
    claims: int
    settled: int


class Code(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which code a handler is: the digest of its source, its module, and the version of its package if it has one."""

    digest: str = ""
    module: str = ""
    version: str = ""


class Service(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker says about itself. `kinds` are the executors that need no handler and are allowed here; `groups`
    None means all queues; `coroutines` are the handlers that need no thread; `apps` is the code it was given. `secrets`
    are names, None if it may have any but those in `lacking_secrets`. A worker with `only_run` takes the steps of
    that run alone, and with an empty one only those of runs that its own program starts. `progress` is of the attempts
    that run, and `usage` how much of it was used."""

    handlers: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    coroutines: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    groups: tuple[str, ...] | None = None
    places: int = 0
    held: int = 0
    free: int = 0
    free_threads: int = 0
    apps: tuple[str, ...] = ()
    host: str = ""
    pid: int = 0
    version: str = ""
    secrets: tuple[str, ...] | None = ()
    lacking_secrets: tuple[str, ...] = ()
    misfits: tuple[Misfit, ...] = ()
    only_run: str | None = None
    progress: tuple[StepProgress, ...] = ()
    usage: tuple[UsageWindow, ...] = ()
    code: dict[str, Code] = {}
    """Which code each of its handlers is."""
    flows: dict[str, dict[int, str]] = {}
    """Of each flow, the versions that it has, each with a digest of its code. Version 0 serves any."""

    @property
    def own_runs(self) -> str | None:
        """Which runs it takes, in words, if not any."""
        return None if self.only_run is None else taken_runs(self.only_run)

    def within(self, limits: WorkLimits) -> Service:
        """The same offer as far as these limits allow it: what the worker will claim."""
        if limits == ANY_WORK:
            return self
        queues, handlers = limits.queues, limits.handlers
        given = {name: getattr(self, name) for name in ("handlers", "agents", "coroutines")}
        fewer = given if handlers is None else {name: tuple(set(of) & set(handlers)) for name, of in given.items()}
        # The rules of a workflow belong to the default queue.
        of_kind = {kind: ("",) if kind == "rules" else queues or ("",) for kind in self.kinds}
        return replace(
            self,
            **{name: tuple(sorted(of)) for name, of in fewer.items()},
            flows={name: versions for name, versions in self.flows.items() if name in fewer["handlers"]},
            kinds=tuple([k for k, of in of_kind.items() if any(limits.allow(QueueSpec(kind=k, group=g)) for g in of)]),
            groups=self.groups if queues is None else tuple(sorted(set(self.groups or queues) & set(queues))),
        )

    def has_secret(self, name: str) -> bool:
        return name not in self.lacking_secrets and (self.secrets is None or name in self.secrets)

    def has_flow(self, spec: QueueSpec) -> bool:
        """Whether it has the version of a flow that a queue asks for. A handler without versions serves any."""
        wanted, versions = flow_version(spec.capabilities), self.flows.get(spec.name)
        return wanted is None or versions is None or wanted in versions or 0 in versions

    def has_rule_handlers(self, spec: QueueSpec) -> bool:
        return all(name in self.handlers for name in handlers_among(spec.capabilities))

    def has_room_for(self, spec: QueueSpec) -> bool:
        return self.free > 0 and (spec.name in self.coroutines or spec.kind == "rules" or self.free_threads > 0)


def kinds_of(spec: QueueSpec) -> frozenset[str]:
    """The executors without a handler that a queue asks for: commands, also as rules and as git, or HTTP calls."""
    rules = ("command",) if COMMANDS in spec.capabilities else ()
    return frozenset((kind_of(spec), *rules)) - {"python", "agent"}


def taken_runs(only_run: str) -> str:
    """Which runs a worker takes, in words."""
    return f"only run {only_run}" if only_run else "only runs that its own program starts"


class Lack(StrEnum):
    """What a live worker does not have for a queue, in the order in which it is told."""

    HANDLER = "handler"
    VERSION = "version"
    KIND = "kind"
    CAPABILITY = "capability"
    SECRET = "secret"  # noqa: S105 - a word
    QUEUE = "queue"
    FIT = "fit"
    RUN = "run"


class WaitingStep(NamedTuple):
    """One step that waits for a worker: its run, its definition and its number."""

    run_id: str
    definition: int
    no: int


class Known(msgspec.Struct, frozen=True):
    """A worker's row and its latest report; a worker of an older version has none."""

    row: Worker
    service: Service | None

    def is_silent(self, now: int) -> bool:
        return self.row.state is WorkerState.UNRESPONSIVE or now - self.row.heard_at > SILENCE

    def is_live(self, now: int) -> bool:
        """Whether it claims steps."""
        return self.row.state in LIVE and not self.is_silent(now)

    def misfit(self, spec: QueueSpec, wanted: WaitingStep | None) -> Misfit | None:
        """Why it hands this step back; without a step, why it hands back some step of the queue."""
        offered = () if self.service is None else self.service.misfits
        asked = None if wanted is None else (wanted.definition, wanted.no)
        return next(
            (
                one
                for one in offered
                if one.handler == (spec.name or spec.kind) and asked in (None, (one.definition, one.no))
            ),
            None,
        )

    def lacks(self, spec: QueueSpec, number: int, wanted: WaitingStep | None = None) -> tuple[Lack, ...]:
        """What keeps it from serving this queue, and this step of it if one is given."""
        offer = self.service
        if offer is None:
            return () if number in self.row.queues else (Lack.HANDLER,)
        found = []
        kind = kind_of(spec)
        if kind in ("python", "agent"):
            names = offer.handlers if kind == "python" else offer.agents
            found += [] if spec.name in names else [Lack.HANDLER]
        if Lack.HANDLER not in found and not offer.has_rule_handlers(spec):
            found.append(Lack.HANDLER)
        if Lack.HANDLER not in found and not offer.has_flow(spec):
            found.append(Lack.VERSION)
        if not kinds_of(spec) <= set(offer.kinds):
            found.append(Lack.KIND)
        if not all(has_word(self.row.capabilities, word) for word in given_words(spec.capabilities)):
            found.append(Lack.CAPABILITY)
        if not all(map(offer.has_secret, secrets_among(spec.capabilities))):
            found.append(Lack.SECRET)
        if offer.groups is not None and spec.group not in offer.groups and spec.kind != "rules":
            found.append(Lack.QUEUE)
        if self.misfit(spec, wanted) is not None:
            found.append(Lack.FIT)
        if offer.only_run is not None and (wanted is None or wanted.run_id != offer.only_run):
            found.append(Lack.RUN)
        return tuple(found)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Service).decode


def encode_service(service: Service) -> bytes:
    return _encode(service)


def read_service(body: bytes) -> Service | None:
    """A worker's report; None where a newer program wrote another form."""
    try:
        return _decode(body)
    except msgspec.MsgspecError:
        return None


def known_workers(rows: Iterable[Worker], reports: Sequence[WorkerReport]) -> tuple[Known, ...]:
    """Rows with their reports."""
    by_number = {report.worker: read_service(report.body) for report in reports}
    return tuple(Known(row, by_number.get(row.no)) for row in rows)
