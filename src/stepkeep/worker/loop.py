"""The worker's loop: claims steps, renews leases, sweeps for due timers, sends heartbeats, and drains.

One event loop does all of this and runs no user code, so that no handler can stop a heartbeat. `attempts` handles
single attempts. The command line, the embedded engine and the simulator run it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from functools import cache, partial
from importlib.metadata import version
from os import geteuid
from typing import Literal

from msgspec.structs import replace

from stepkeep.definition.python.registry import Registry
from stepkeep.kernel.decide.decision import Claimer
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import InvalidInput, StoreError
from stepkeep.kernel.people.authority import ANY_WORK, Caller, WorkLimits
from stepkeep.operations import validate
from stepkeep.operations.children.children import ChildSweep
from stepkeep.operations.continuation.jobs import JobSweep
from stepkeep.operations.continuation.other_code import CodeSweep
from stepkeep.operations.limits.limits import forget_keys
from stepkeep.operations.limits.pauses import NONE as NONE_PAUSED
from stepkeep.operations.limits.pauses import read_pauses
from stepkeep.operations.limits.slots import SlotSweep
from stepkeep.operations.messages.mailbox import forget
from stepkeep.operations.pipeline.codec import SEALED_QUEUE
from stepkeep.operations.pipeline.expire import sweep_timers
from stepkeep.operations.pipeline.maintenance import maintain
from stepkeep.operations.pipeline.start import StartedHere
from stepkeep.operations.pipeline.transact import Claim, Transactor, first_claimed_at
from stepkeep.operations.pipeline.workers import retire_silent
from stepkeep.operations.remote.services import Known, Service
from stepkeep.operations.triggers.events import consume
from stepkeep.operations.triggers.sweep import TriggerSweep
from stepkeep.sinks.interface import SEND_SECONDS, SinkContext
from stepkeep.store.protocol import EVENTS_READY, RUNS_SETTLED, RUNS_STOPPED, Notification
from stepkeep.worker import forks
from stepkeep.worker.attempts.attempts import Attempts
from stepkeep.worker.attempts.claiming import named
from stepkeep.worker.attempts.prepared import PreparedSteps
from stepkeep.worker.attempts.progress import PUBLISH_SECONDS
from stepkeep.worker.attempts.runner import HandlerRunner, PooledRunner
from stepkeep.worker.attempts.secrets import Given, Secrets, as_secrets
from stepkeep.worker.chores.listening import Calls, ListenerCalls, add_sinks
from stepkeep.worker.chores.membership import Membership
from stepkeep.worker.chores.polling import LocalTimers, QueuePoller
from stepkeep.worker.chores.queues import Kind, allowed_kinds, served_queues
from stepkeep.worker.chores.relay import Relay, RelayPace
from stepkeep.worker.code import code_of, flow_builds
from stepkeep.worker.executors.command import CommandPolicy
from stepkeep.worker.executors.http import HttpPolicy
from stepkeep.worker.hooks import Hooks
from stepkeep.worker.outage import Outage
from stepkeep.worker.pools.handler_loop import HandlerLoop, Lifespan, handler_loop
from stepkeep.worker.runtime import Runtime
from stepkeep.worker.settings import Settings
from stepkeep.worker.shared import NO_RUN, Shared, Signals
from stepkeep.worker.utilisation import Vitals

log = logging.getLogger("stepkeep.worker")

LAG_WORTH_TELLING = 1.0
SWEEP_SPREAD = 0.15
"""Less than elsewhere: the longest pause between two sweeps adds to the time until a dead worker's steps are claimed
again."""
GROUPS = 3
"""Three batches: one is decided here while the database writes another and the handlers of the third run."""

SMALL = 50
"""A batch of so few is not divided, because that would only cost more commits."""

LONGEST_NAME = 127
"""Characters at the start of a worker's id; its host, process and a random part follow."""

WATCH = 0.2
NEWS = 0.5
"""A list of queues younger than this (seconds) is not read again for a notification without a queue."""

Chore = Callable[[], Awaitable[None]]


@cache
def _version() -> str:
    return version("stepkeep")


class Worker:
    """One worker process (or one inside yours).

    `concurrency` limits the attempts it holds, `threads` those of them that are no coroutines. `queues` names the
    groups it serves (all by default), `capabilities` what it can do beyond having handlers. `apps` names the code
    that it was given, for `explain`. `secrets` tells where it finds the values of secrets. `lifespan` opens what
    handlers share; with `loop="mine"` they run on the loop that runs the worker. With `only_run`, it executes the
    steps of that run and of no other; with `NO_RUN`, of none until `engage` names one. `owner` is on record as the
    principal that executes them: the owner of the key that the engine was opened with. `limits` are those of that key.

        worker = Worker(transactor, registry, app="billing", concurrency=200, threads=32)
        await worker.serve()
    """

    def __init__(
        self,
        transactor: Transactor,
        registry: Registry,
        *,
        app: str = "worker",
        tenant: str = "default",
        concurrency: int | None = None,
        threads: int | None = None,
        capabilities: Iterable[str] = (),
        queues: Iterable[str] | None = None,
        http: HttpPolicy | None = None,
        commands: CommandPolicy | None = None,
        process_memory_bytes: int | None = None,
        secrets: Secrets | Given | None = None,
        settings: Settings | None = None,
        runtime: Runtime | None = None,
        runner: HandlerRunner | None = None,
        apps: Iterable[str] = (),
        home: HandlerLoop | None = None,
        lifespan: Lifespan | None = None,
        loop: Literal["own", "mine"] = "own",
        only_run: str | None = None,
        owner: str | None = None,
        limits: WorkLimits = ANY_WORK,
        calls: Calls | None = None,
        membership: Callable[..., Membership] = Membership,
    ) -> None:
        asked = {"concurrency": concurrency, "threads": threads}
        policies = {
            "http": http,
            "commands": commands,
            "process_memory_bytes": process_memory_bytes,
            "secrets": None if secrets is None else as_secrets(secrets),
        }
        given = {name: value for name, value in (asked | policies).items() if value is not None}
        settings = settings or Settings()
        given["result_bytes"] = min(settings.result_bytes, transactor.payloads.max_bytes)
        self._settings = replace(settings, **given)
        commands, is_embedded = self._settings.commands, transactor.has_database and transactor.store.is_embedded
        # The relay sends events of every run of the tenant, also in a program that executes only its own.
        self._hooks = Hooks(transactor, tenant, commands.decided(tenant, by_default=is_embedded))
        commands = commands.decided(tenant, by_default=is_embedded or only_run is not None)
        self._settings = replace(self._settings, commands=commands)
        if self._settings.pool < 1:
            raise InvalidInput(f"a worker has at least one slot: concurrency and threads are 1 or more, not {asked}.")
        self._runtime = runtime or Runtime()
        self._transactor, self._registry, self._tenant = transactor, registry, tenant
        self._capabilities = frozenset(validate.names("the capabilities of a worker", capabilities))
        self._groups = None if queues is None else frozenset(validate.queues("the queues of a worker", queues))
        self._limits = limits
        self._apps = tuple(validate.names("the apps of a worker", apps))
        self._outage = Outage(self._runtime, "the database" if transactor.has_database else "the service")
        self._home, self._owns_home = home or handler_loop(registry, lifespan, loop), home is None
        self._prepared = PreparedSteps(registry, self._settings, self._home.shared)
        self._runner = runner or PooledRunner(
            self._settings, home=self._home, on_close=[self._prepared.aclose], on_replaced=[self._prepared.forget_loop]
        )
        self._membership = membership(
            transactor.store,
            tenant=tenant,
            app=validate.key("the name of a worker", app, LONGEST_NAME),
            capacity=self._settings.concurrency,
            capabilities=tuple(sorted(self._capabilities)),
            owner=owner,
        )
        self._timers = LocalTimers(self._runtime)
        signals = Signals(self._note_change, self.wake, self._timers.set_in, self._ability_changed)
        self._shared = Shared(
            transactor,
            self._runner,
            self._membership,
            self._settings,
            self._runtime,
            self._outage,
            signals,
            None if only_run is None else (tenant, only_run and validate.run_id(only_run)),
        )
        self._attempts = Attempts(self._shared, self._prepared, tenant, self._read_queues)
        self._triggers = TriggerSweep(transactor)
        self._jobs = JobSweep(transactor)
        self._code_sweep = CodeSweep(transactor, tenant)
        self._children = ChildSweep(transactor) if transactor.has_database else None
        self._slot_sweep = SlotSweep(transactor) if transactor.has_database else None
        self._pollers = {
            kind: QueuePoller(self._settings, self._runtime, lambda: transactor.store.notifier.is_connected)
            for kind in Kind
        }
        self._calls = calls or ListenerCalls(registry, self._home)
        self._relay_pace = RelayPace(
            self._settings.relay_seconds, self._runtime, lambda: transactor.store.notifier.is_connected
        )
        self.relay = Relay(
            transactor,
            tenant,
            holder=lambda: self.id or "",
            context=self._sink_context,
            can_call=self._calls.has,
            can_run=self._hooks.may_run,
            has_secret=self._shared.secrets.has,
            runtime=self._runtime,
            lease_us=int(self._settings.relay_lease_seconds * 1_000_000),
            due_in=self._relay_pace.due_in,
        )
        self._has_blocking = asyncio.Event()
        self._progress = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._engaged, self._scope_changed = asyncio.Event(), asyncio.Event()
        if only_run != NO_RUN:
            self._engaged.set()
        self.joined = asyncio.Event()
        self._queues_read_at = float("-inf")
        self._topics_seen = frozenset({RUNS_SETTLED, RUNS_STOPPED, EVENTS_READY})
        self._queues_known: Sequence[tuple[int, QueueSpec]] = ()
        self._pauses = NONE_PAUSED
        self._maintain_in = self._settings.first_maintain_seconds
        self._publish_in = self._settings.first_publish_seconds
        self._has_published = False
        self._grace = self._settings.grace_seconds
        self._misfits_told = 0
        self._listeners_added = False
        self.loop_lag = 0.0
        self._answered_at = self._claimed_at = self._runtime.monotonic()

    # -- what others call --------------------------------------------------------------------------------------------
    async def serve(self, *, signals: bool = False) -> None:
        """Work until `stop` is called (with `signals`: or SIGTERM or SIGINT arrives), then drain."""
        loop = asyncio.get_running_loop()
        heeded = (signal.SIGTERM, signal.SIGINT) if signals else ()
        for which in heeded:
            loop.add_signal_handler(which, self._signalled)
        try:
            with forks.heeding(heeded):
                await self._work(self._stopping.wait())
        finally:
            for which in heeded:
                loop.remove_signal_handler(which)

    async def run_until(self, is_done: Callable[[], Awaitable[bool]]) -> None:
        """Work until this returns True; it is called whenever something was recorded, and periodically."""
        await self._work(self._watch(is_done))

    def stop(self, grace: float | None = None) -> None:
        """Stop claiming, let handlers finish within `grace` seconds, release the rest, end."""
        if grace is not None:
            self._grace = grace
        self._stopping.set()
        for poller in self._pollers.values():
            poller.awake.set()

    def wake(self, *, new_queues: bool = False) -> None:
        """Poll for work now: a sweep or a report knows of ready steps. With `new_queues`, read the queues first.

        Call it on the worker's own loop.
        """
        if new_queues:
            self._queues_read_at = float("-inf")
        for poller in self._pollers.values():
            poller.pace.woken()
            poller.awake.set()

    def first_claimer(self) -> Claimer:
        """This worker, which rests, with its slots for the first steps of a new run."""
        limit = self._attempts.free_for_any
        return self._shared.claimer(self._shared.slots.queues.all, limit, limit)

    def note_unconfirmed(self, claims: Sequence[Claim]) -> None:
        """Release these claims before the next claim, or when the worker stops: their commit was never answered."""
        self._attempts.claiming.keep_unconfirmed(named(claims))

    async def engage(self, begun: StartedHere) -> None:
        """Execute the steps of this run and of no other until `rest`: those claimed already, and those ready now."""
        self._shared.only_run, self._shared.family = (self._tenant, begun.started.run_id), ()
        self._runner.use_context(copy_context())
        for poller in self._pollers.values():
            # The claim below replaces the polls that earlier notifications asked for.
            poller.awake.clear()
            poller.pace.rest()
        self._engaged.set()
        self._scope_changed.set()
        try:
            async with self._claiming:
                self._attempts.take(begun.claims)
                if begun.has_more:
                    if not begun.started.created:
                        # The notification of a new run has named unknown queues.
                        self._queues_read_at = float("-inf")
                    if self._queue_news_age >= self._settings.refresh_queues_seconds:
                        await self._read_queues()
                    await self._attempts.claim_own()
        except StoreError as problem:
            self._outage.met(problem)
            self.wake()
        if self.held:
            self._shared.spawn(self._mark_busy(begun.claims))

    async def rest(self) -> bool:
        """Execute no run until the next `engage`. Returns whether there can be one: if not, stop the worker."""
        async with self._claiming:
            # A claim that was under way has arrived; from here on no more can arrive.
            self._engaged.clear()
            self._shared.only_run, self._shared.family = (self._tenant, NO_RUN), ()
        self._scope_changed.set()
        self._runner.use_context(Context())
        await self._reports_written(self._settings.closing_seconds)
        return self._attempts.are_over and not (
            self._stopping.is_set() or self._outage.lasts or self._shared.misfits.known or self._runner.unable
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """The executors without a handler that it runs."""
        return allowed_kinds(self._settings)

    @property
    def held(self) -> int:
        """How many attempts it holds."""
        return len(self._shared.leases)

    @property
    def free_slots(self) -> int:
        """How many of its slots are free: held by no attempt, and by no handler that outlived its attempt."""
        return self._shared.slots.unused.total

    @property
    def id(self) -> str | None:
        """Its name in the database, once it is registered."""
        return self._membership.row.id if self._membership.is_registered else None

    def vitals(self) -> Vitals:
        """How it is: for metrics and health checks. Call it on the worker's own loop."""
        now = self._runtime.monotonic()
        return Vitals(
            app=self._membership.app,
            id=self.id,
            places=self._settings.concurrency,
            held=self.held,
            free=self.free_slots,
            usage=self._shared.meter.usage(),
            loop_lag_seconds=self.loop_lag,
            answered_seconds_ago=now - self._answered_at,
            claimed_seconds_ago=now - self._claimed_at,
            is_store_up=not self._outage.lasts and self._outage.gone is None,
            is_draining=self._stopping.is_set(),
            relayed=self.relay.tally,
        )

    # -- life --------------------------------------------------------------------------------------------------------
    async def _work(self, end: Awaitable[object]) -> None:
        self._attempts.open()
        unsubscribe = self._transactor.store.notifier.listen(self._notified)
        chores: list[asyncio.Task[None]] = []
        ending = asyncio.ensure_future(end)
        self._outage.give_up = ending.cancel
        try:
            await self._home.ready()
            await self._join(ending)
            self.joined.set()
            if not ending.done():
                work: dict[str, Chore] = {
                    "watch over leases": self._attempts.keeper.watch,
                    "beat": self._beat,
                    "sweep": self._sweep,
                }
                if self._settings.relay_seconds > 0 and self._transactor.has_database:
                    work["relay"] = self._relay
                if self._transactor.has_database:
                    work["maintain"] = self._maintain
                if self._children is not None and self._settings.children_seconds > 0:
                    work["look after children"] = partial(self._look_after_children, self._children)
                if self._slot_sweep is not None and self._settings.slots_seconds > 0:
                    work["grant slots"] = partial(self._grant_slots, self._slot_sweep)
                if self._settings.jobs_seconds > 0 and self._transactor.has_database:
                    work["carry out jobs"] = self._carry_out_jobs
                work |= {"publish": self._publish, "tell progress": self._tell_progress}
                work |= {f"search for {kind} work": partial(self._poll, kind) for kind in Kind}
                chores = [asyncio.create_task(self._chore(name, each), name=name) for name, each in work.items()]
            await self._until(ending)
        except BaseException:
            # The caller does not wait, but the claims must not wait for their leases to expire.
            self._grace = 0.0
            raise
        finally:
            try:
                await self._drain()
            finally:
                unsubscribe()
                if self._children is not None:
                    self._children.close()
                if self._slot_sweep is not None:
                    self._slot_sweep.close()
                self._calls.close()
                ending.cancel()
                for chore in chores:
                    chore.cancel()
                tasks = self._attempts.cancel_tasks()
                self._runner.close()
                await asyncio.gather(*chores, *tasks, ending, return_exceptions=True)
                if self._owns_home:
                    await self._home.aclose()

    async def _until(self, ending: asyncio.Future[object]) -> None:
        """Wait for the end; a database that is gone for good ends the worker too."""
        try:
            await ending
        except asyncio.CancelledError:
            if self._outage.gone is None:
                raise
            raise self._outage.gone from None

    async def _join(self, ending: asyncio.Future[object]) -> None:
        """Register, and wait for the database if needed."""
        tries = 0
        while not ending.done():
            try:
                await self._read_queues()
                await self._membership.join(tuple(sorted(self._shared.slots.queues.all)))
            except StoreError as problem:
                self._outage.met(problem)
                await self._outage.pause(tries)
                tries += 1
            else:
                self._outage.over()
                return

    async def _chore(self, name: str, work: Chore) -> None:
        """Repeat a task; an outage or a defect makes it pause, but never ends it."""
        tries = 0
        while True:
            try:
                await work()
            except StoreError as problem:
                self._outage.met(problem)
            except Exception:
                log.exception("the worker's %s failed; it goes on", name)
            else:
                tries = 0
                continue
            await self._outage.pause(tries)
            tries += 1

    async def _drain(self) -> None:
        """Stop claiming, keep leases and heartbeats, give handlers their grace, release the rest, deregister."""
        self._shared.may_claim = False
        self._stopping.set()
        if not self._membership.is_registered:
            return
        with suppress(StoreError):
            await self._membership.drain()
        async with self._claiming:
            # A claim that was under way has arrived; from here on no more can arrive.
            self._attempts.keeper.release_unstarted()
        began = self._runtime.monotonic()
        # Read the grace each time: a second signal shortens it during this wait.
        while len(self._shared.leases) and (left := began + self._grace - self._runtime.monotonic()) > 0:
            self._progress.clear()
            await self._runtime.wait(self._progress, min(left, WATCH))
        self._attempts.keeper.release_rest()
        with suppress(StoreError):
            await self._attempts.claiming.release_unconfirmed()
        await self._reports_written(self._settings.closing_seconds if self._outage.gone is None else 0.0)
        await self._end_relay(max(0.0, min(SEND_SECONDS, began + self._grace - self._runtime.monotonic())))
        with suppress(StoreError):
            if not self._has_published:
                # Which code ran its attempts is told by what a worker publishes.
                await self._membership.publish(self._offer())
            await self._membership.leave()

    async def _reports_written(self, seconds: float) -> None:
        """Wait until no report is under way, for so long at most."""
        until = self._runtime.monotonic() + seconds
        while not self._attempts.reporting.commits.idle and (left := until - self._runtime.monotonic()) > 0:
            self._progress.clear()
            await self._runtime.wait(self._progress, min(left, WATCH))

    def _signalled(self) -> None:
        # A second signal means: do not wait.
        is_second = self._stopping.is_set()
        self.stop(0.0 if is_second else None)
        if self.held and not is_second:
            steps = "1 step has" if self.held == 1 else f"{self.held} steps have"
            log.warning("draining: %s %g s to finish; a second signal hands them back at once", steps, self._grace)
        elif self.held:
            log.warning("releasing the steps that still run")

    def _notified(self, notification: Notification) -> None:
        """A notification arrived. It may be wrong: it only makes the next poll or renewal come sooner."""
        unknown = (notification.topics or frozenset()) - self._topics_seen
        self._topics_seen |= unknown
        if unknown:
            self._queues_read_at = float("-inf")
        for kind, poller in self._pollers.items():
            if unknown or notification.concerns(self._shared.slots.queues.of(kind)):
                poller.in_doubt = notification.topics is None
                poller.awake.set()
        if notification.concerns((EVENTS_READY, RUNS_SETTLED)):
            self._relay_pace.wake()
        if notification.concerns((RUNS_STOPPED,)):
            self._attempts.keeper.check(notification.runs_of(RUNS_STOPPED))

    def _note_change(self) -> None:
        self._progress.set()
        self._relay_pace.wake()
        for poller in self._pollers.values():
            poller.slot_freed.set()

    async def _watch(self, is_done: Callable[[], Awaitable[bool]]) -> None:
        while not self._stopping.is_set():
            self._progress.clear()
            try:
                if await is_done():
                    return
            except StoreError as problem:
                self._outage.met(problem)
            await self._runtime.wait(self._progress, WATCH)

    # -- chores ------------------------------------------------------------------------------------------------------
    async def _poll(self, kind: Kind) -> None:
        """Claim as many steps of this kind as there are free slots, then wait until the next poll.

        Each kind is polled by itself, so that a worker full of one kind still claims the other.
        """
        if kind is Kind.BLOCKING:
            # Until then, polling for async work keeps the list of queues up to date for both kinds.
            await self._runtime.wait(self._has_blocking, None)
        if not self._engaged.is_set():
            await self._runtime.wait(self._engaged, None)
            # `engage` claims by itself.
            await self._pause(kind)
            return
        poller = self._pollers[kind]
        summoned = poller.begin()
        if self._stopping.is_set():
            await self._runtime.sleep(WATCH)
            return
        if self._shared.slots.free.of(kind) <= 0:
            await self._runtime.wait(poller.slot_freed, self._settings.idle_poll_seconds)
            return
        was_busy = self.held > 0
        async with self._claiming:
            if self._stopping.is_set() or not self._engaged.is_set():
                # It changed during the wait; the drain and `rest` wait for this lock too.
                return
            if self._queue_news_age >= self._settings.refresh_queues_seconds:
                await self._read_queues()
            sure = summoned or poller.pace.found_all or self._attempts.claiming.has_unconfirmed
            may_find = sure or await self._has_ready(kind)
            # Only now: during the wait, reports may have filled the free slots.
            slots = max(0, min(self._shared.slots.free.of(kind), self._group(kind)))
            claims = await self._attempts.claim(kind, slots, poller.mark.after()) if may_find else []
        self._outage.over()
        self._answered_at = self._runtime.monotonic()
        if claims:
            self._claimed_at = self._answered_at
        poller.mark.looked(len(claims), slots, claims[-1].claimed_at if claims else None)
        poller.pace.found(len(claims), slots, was_called=summoned)
        if self._shared.only_run is not None and not poller.pace.found_all:
            # Steps of one run become ready by its own reports, which claim them, or with a notification.
            poller.pace.rest()
        if claims and not was_busy:
            await self._membership.mark(busy=True, since=first_claimed_at(claims))
        if not claims and poller.in_doubt and self._queue_news_age > NEWS:
            # A notification came for no queue that this worker knows.
            self._queues_read_at = float("-inf")
            poller.awake.set()
        poller.in_doubt = False
        await self._pause(kind)

    def _group(self, kind: Kind) -> int:
        """How many steps to claim at a time: steps claimed together are reported together."""
        share = -(-self._shared.slots.size(kind) // GROUPS)
        return min(self._settings.claim_batch, max(SMALL, share))

    async def _has_ready(self, kind: Kind) -> bool:
        """Read once without locks whether there is work, if the last claim found less than it asked for and no
        notification came since."""
        queues = self._shared.slots.queues.of(kind)
        if self._shared.only_run is not None:
            return bool(queues)
        if not queues:
            return False
        return await self._transactor.store.has_ready(queues) or await self._transactor.find_waiting_steps()

    @property
    def _queue_news_age(self) -> float:
        return self._runtime.monotonic() - self._queues_read_at

    async def _pause(self, kind: Kind) -> None:
        poller = self._pollers[kind]
        seconds = poller.pace.seconds
        if self._transactor.steps_wait:
            # The end of a step in another process frees a resource without a notification.
            seconds = min(seconds, self._settings.resources_seconds)
        seconds = min(seconds, self._transactor.line_due_in)
        if self.held and self._shared.slots.free.of(kind) < self._shared.slots.size(kind) // 4:
            # Nearly full: chained claims keep it so. A claim for one slot at a time would cost a commit each.
            deaf = self._settings.busy_poll_seconds * 5
            await self._runtime.sleep(deaf)
            seconds -= deaf
        await self._runtime.wait(poller.awake, seconds)

    def _offer(self) -> Service:
        """What it serves and how much it holds, for `explain` and `status`."""
        free = self._shared.slots.unused
        return Service(
            handlers=self._registry.names,
            agents=self._registry.agents,
            coroutines=tuple(sorted(spec.name for spec in self._registry if spec.runs_in == "async")),
            kinds=self.kinds,
            groups=None if self._groups is None else tuple(sorted(self._groups)),
            places=self._settings.concurrency,
            held=self._settings.concurrency - free.total,
            free=free.total,
            free_threads=free.blocking if self._shared.slots.queues.blocking else free.total,
            apps=self._apps,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=_version(),
            secrets=self._shared.secrets.offered(),
            lacking_secrets=self._shared.secrets.lacking(),
            misfits=self._shared.misfits.known,
            only_run=None if self._shared.only_run is None else self._shared.only_run[1],
            progress=self._shared.progress.collect(self._shared.leases, self._runtime.monotonic()),
            usage=self._shared.meter.usage(),
            code={spec.name: code_of(spec.function) for spec in self._registry},
            flows=flow_builds(self._registry),
        ).within(self._limits)

    async def _read_queues(self) -> None:
        known = await self._transactor.store.list_queues(self._tenant)
        self._queues_read_at = self._runtime.monotonic()
        self._topics_seen |= {number for number, _ in known}
        self._queues_known = [(number, spec) for number, spec in known if self._limits.allow(spec)]
        self._shared.has_sealed_runs = any(spec == SEALED_QUEUE for _, spec in known)
        if self._transactor.has_database:
            self._pauses = await read_pauses(self._transactor.store, self._tenant)
            await self._guard_root()
        self._choose_queues()

    async def _guard_root(self) -> None:
        """Run no commands as root where they would reach other tenants: root reads every file and every process."""
        commands = self._settings.commands
        runs_as = geteuid() if commands.identity is None else commands.identity.uid
        if runs_as != 0 or not (commands.enabled or self._hooks.enabled):
            return
        if self._transactor.store.is_confined or await self._transactor.store.has_other_tenants(self._tenant):
            self._hooks.enabled = False
            if self._shared.only_run is None:
                self._settings = replace(self._settings, commands=replace(commands, enabled=False))
            log.warning(
                "this worker runs as root, and the database has several tenants: it runs no commands. Give it another "
                "user for them, --commands-as USER, or start it as one"
            )

    async def _read_pauses(self) -> None:
        """Leave queues out of claims that were paused since the last sweep, and claim from those that are not any more.
        The service does that for a worker without a database."""
        found = await read_pauses(self._transactor.store, self._tenant)
        if found != self._pauses:
            self._pauses = found
            self._choose_queues()
            self.wake()

    def _choose_queues(self) -> None:
        """Serve the queues whose handlers can run now, given the pools they run in."""
        slots = self._shared.slots
        slots.queues = served_queues(
            self._queues_known,
            self._registry,
            capabilities=self._capabilities,
            groups=self._groups,
            settings=self._settings,
            unable=self._runner.unable,
            has_secret=self._shared.secrets.has,
            paused=self._shared.misfits.paused | self._pauses.numbers(self._queues_known),
        )
        if slots.queues.blocking:
            self._has_blocking.set()

    def _ability_changed(self) -> None:
        """A kind of handler can no longer run, or runs again, or a handler does not fit a step."""
        self._choose_queues()
        if len(self._shared.misfits.known) > self._misfits_told:
            self._misfits_told = len(self._shared.misfits.known)
            self._shared.spawn(self._publish_now())

    async def _publish_now(self) -> None:
        try:
            await self._membership.publish(self._offer())
        except StoreError as problem:
            self._outage.met(problem)

    async def _beat(self) -> None:
        await self._runtime.sleep(self._runtime.spread(self._settings.heartbeat_seconds, by=0.05))
        if not await self._membership.beat():
            self._attempts.keeper.lose_all("this worker had been given up for lost")
        if not self.held and not self._stopping.is_set():
            await self._membership.mark(busy=False)
        if self._transactor.has_database:
            await retire_silent(self._transactor.store, actor="sweep")

    async def _mark_busy(self, claims: Sequence[Claim]) -> None:
        try:
            await self._membership.mark(busy=True, since=first_claimed_at(claims))
        except StoreError as problem:
            self._outage.met(problem)

    async def _publish(self) -> None:
        """Publish what it serves and how much it holds. Not at once: a worker that lives for one run need not."""
        if await self._runtime.wait(self._scope_changed, self._publish_in):
            await self._runtime.sleep(self._settings.first_publish_seconds)
            self._scope_changed.clear()
        self._publish_in = self._settings.heartbeat_seconds
        await self._membership.publish(self._offer())
        self._has_published = True

    async def _tell_progress(self) -> None:
        """Publish what handlers say about how far they are: the first value at once, later ones together."""
        await self._runtime.wait(self._shared.progress.changed, None)
        self._shared.progress.begin()
        await self._membership.publish(self._offer())
        self._has_published = True
        await self._runtime.sleep(PUBLISH_SECONDS)

    async def _sweep(self) -> None:
        await self._runtime.wait(self._engaged, None)
        self.loop_lag = max(
            0.0, await self._timers.sleep(self._runtime.spread(self._settings.sweep_seconds, by=SWEEP_SPREAD))
        )
        if self.loop_lag > LAG_WORTH_TELLING:
            log.warning("the worker's event loop was held up for %.1f s", self.loop_lag)
        self._runner.check()
        if not self._transactor.has_database:
            return
        await self._read_pauses()
        found = await sweep_timers(self._transactor) + await self._triggers.sweep()
        if self._has_flows and self._code_sweep.is_due(self._runtime.monotonic()):
            found += await self._code_sweep.sweep(Known(self._membership.row, self._offer()))
        if found:
            self.wake()

    @property
    def _has_flows(self) -> bool:
        return any(spec.kind == "python" and spec.runs_in == "async" for spec in self._registry)

    async def _look_after_children(self, children: ChildSweep) -> None:
        """Start and cancel child runs, and tell parents how they ended; at once if this process caused it."""
        await self._runtime.wait(self._engaged, None)
        await self._runtime.wait(children.changed, self._runtime.spread(self._settings.children_seconds))
        found = await children.sweep()
        if (own := self._shared.only_run) is not None and own[1] != NO_RUN:
            self._shared.family = await children.family_of(own)
        if found:
            self.wake(new_queues=True)
            self._note_change()

    async def _grant_slots(self, slots: SlotSweep) -> None:
        """Grant execution slots to queued runs; at once if this process ended a run or created one that waits."""
        await self._runtime.wait(self._engaged, None)
        await self._runtime.wait(slots.changed, self._runtime.spread(self._settings.slots_seconds))
        if await slots.sweep():
            self.wake()

    async def _carry_out_jobs(self) -> None:
        """Go on with jobs on many runs. A task of its own: no sweep waits for them."""
        await self._runtime.wait(self._engaged, None)
        acted = await self._jobs.sweep(self.id or "worker")
        if acted:
            self.wake()
        else:
            await self._runtime.sleep(self._runtime.spread(self._settings.jobs_seconds))

    async def _relay(self) -> None:
        """Send what runs emit to sinks. A task of its own: no claim and no sweep waits for a receiver."""
        if not self._listeners_added:
            await add_sinks(self._transactor, self._registry, caller=Caller(self._tenant, self.id or "worker"))
            self._listeners_added = True
            self.relay.forget_sinks()
        if not self._stopping.is_set():
            self._relay_pace.looked(await self.relay.turn())
        await self._relay_pace.wait()

    async def _end_relay(self, seconds: float) -> None:
        """Send what the last steps emitted, once; then report what was acknowledged."""
        if self._settings.relay_seconds <= 0 or not self._transactor.has_database:
            return
        with suppress(StoreError):
            await self.relay.stop(seconds, flush=True)
        await self.relay.stop(seconds)

    def _sink_context(self, name: str) -> SinkContext:
        async def secret(wanted: str) -> str:
            return (await self._shared.secrets.read([wanted]))[wanted]

        return SinkContext(
            name=name,
            tenant=self._tenant,
            secret=secret,
            call=self._calls.call,
            reach=self._settings.http.reach(),
            run=self._hooks.run,
            message=self._hooks.messages_of(name).send,
            fire=partial(consume, self._triggers.firer),
        )

    async def _maintain(self) -> None:
        """Have the store maintain itself. A task of its own, so that no sweep waits for it."""
        await self._runtime.sleep(self._maintain_in)
        self._maintain_in = self._settings.maintain_seconds
        await maintain(self._transactor.store)
        await forget(self._transactor.store)
        await forget_keys(self._transactor.store)
