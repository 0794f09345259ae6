"""`stepkeep worker`: serve until told to stop, then drain. The process that deployments run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.answering import open_engine, read_key, required_key, service_address
from stepkeep.cli.arguments import Apps, ArchiveRoot, Capabilities, Concurrency, Text, Texts, Threads, finite, opt
from stepkeep.cli.command import program
from stepkeep.cli.commands.serve import MetricsHost, MetricsPort
from stepkeep.cli.policies import StepPolicies
from stepkeep.cli.printer import SUCCEEDED, answer, quiet_stdout, warn
from stepkeep.cli.session import load_handlers
from stepkeep.cli.settings import Settings
from stepkeep.cli.streams import install_log, install_tracing
from stepkeep.kernel.errors import InvalidInput, StepkeepError

if TYPE_CHECKING:
    import socket

    from stepkeep.definition.python.registry import Registry
    from stepkeep.engine import AsyncEngine
    from stepkeep.evidence.signing import SigningKey
    from stepkeep.worker.loop import Worker


@program.command("worker", policies=True)
def worker(
    settings: Settings,
    policies: StepPolicies,
    app: Apps = None,
    concurrency: Concurrency = 1000,
    threads: Threads = 64,
    capability: Capabilities = None,
    queue: Annotated[
        Texts, opt("--queue", "NAME", 'Serve only these queues; may be repeated. The default queue is "".')
    ] = None,
    name: Annotated[str, opt("--name", "NAME", "What this worker's id begins with.")] = "worker",
    grace: Annotated[
        float,
        opt("--grace", "SECONDS", "How long running steps may take when it stops.", min=0, max=86_400, callback=finite),
    ] = 30.0,
    log_level: Annotated[str, opt("--log-level", "LEVEL", "debug, info, warning or error.")] = "info",
    log_format: Annotated[str, opt("--log-format", "FORMAT", "text, or json: one object per line.")] = "text",
    keep_log: Annotated[
        int, opt("--keep-log", "Keep N lines of ctx.logger of each attempt, in the stream log.", min=0, max=1000)
    ] = 200,
    state_dir: Annotated[Text, opt("--state-dir", "DIR", "Keep the state files of workstreams in DIR current.")] = None,
    archive_root: ArchiveRoot = Path(),
    delete_expired: Annotated[
        bool, opt("--delete-expired", "Delete archived runs when the `keep` of their workflow has passed.")
    ] = False,
    sign_with: Annotated[
        Path | None,
        opt(
            "--sign-with",
            "FILE",
            "Sign the heads of runs of this tenant soon after they end, with the signing key of this file.",
        ),
    ] = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
) -> int:
    """Run steps until SIGTERM or SIGINT, then finish what runs and hand back the rest.

    With --server, over the HTTP API of a service, with a key of the scope work.
    """
    install_log(log_level, log_format)
    if settings.server is not None:
        require_remote(settings, state_dir, metrics_port, sign_with, delete_expired)
    install_tracing("stepkeep-worker")
    from stepkeep.evidence.signing import read_key as read_signing_key

    signing_key = None if sign_with is None else read_signing_key(sign_with)
    metrics = None if metrics_port is None else _listen(metrics_host, metrics_port)
    load_handlers(app or [])
    options: dict[str, Any] = {
        "app": name,
        "apps": app or [],
        "concurrency": concurrency,
        "threads": threads,
        "capabilities": capability or [],
        "queues": queue or None,
    }
    places = f"{concurrency} places and {min(threads, concurrency)} threads"
    log = {"grace_seconds": grace, "first_publish_seconds": 0.0, "log_lines": keep_log}
    with quiet_stdout(settings.json):
        if settings.server is not None:
            opened = _at_service(settings, policies, settings.server, options, log, places)
        else:
            beside = (state_dir, archive_root, delete_expired, metrics, signing_key)
            opened = _at_database(settings, policies, options, log, places, beside)
        worker_id = asyncio.run(_serve(opened))
    if settings.json:
        answer({"worker": {"id": worker_id, "state": "shutdown"}})
    return SUCCEEDED


async def _serve(opened: AbstractAsyncContextManager[Any]) -> str | None:
    """Work until a signal; returns the id of the worker."""
    with interrupted_by_signals():
        try:
            async with opened as worker:
                await worker.serve(signals=True)
            warn(f"worker {worker.id} has drained and stopped")
            return str(worker.id)
        except asyncio.CancelledError:
            warn("stopped before it served: nothing was claimed")
            return None


@asynccontextmanager
async def _at_database(
    settings: Settings,
    policies: StepPolicies,
    options: Mapping[str, Any],
    log: Mapping[str, Any],
    places: str,
    beside: tuple[str | None, Path, bool, socket.socket | None, SigningKey | None],
) -> AsyncIterator[Worker]:
    """A worker beside the database, with what it does besides."""
    from stepkeep.worker.chores.archives import archiving
    from stepkeep.worker.process import devote_process
    from stepkeep.worker.settings import Settings as WorkerSettings

    state_dir, base, deletes, metrics, signing_key = beside
    async with open_engine(settings, policies, wait_for_database=True, creates=True, operation="serve") as engine:
        devote_process()
        worker = engine.worker(settings=WorkerSettings(**log), **options)
        queues, capabilities = options["queues"], options["capabilities"]
        served = ", ".join(name or "(default)" for name in queues) if queues else "all"
        skills = f"; capabilities: {', '.join(capabilities)}" if capabilities else ""
        about = f"queues: {served}{skills}; {_handlers(engine.registry, worker.kinds)}"
        warn(f"worker of tenant {engine.tenant} serves with {places}; {about}")
        async with (
            _state_files(engine, state_dir),
            archiving(engine.transactor, tenant=engine.tenant, base=base, deletes=deletes, report=warn),
            _signed_heads(engine, signing_key),
            _metrics(engine, worker, metrics),
        ):
            yield worker
            _heed_no_more_signals()


def _handlers(registry: Registry, kinds: Collection[str]) -> str:
    off = "" if "command" in kinds else "; commands are off (--allow-commands TENANT)"
    return f"handlers: {', '.join(spec.name for spec in registry) or 'none'}{off}"


@asynccontextmanager
async def _at_service(
    settings: Settings,
    policies: StepPolicies,
    server: str,
    options: Mapping[str, Any],
    log: Mapping[str, Any],
    places: str,
) -> AsyncIterator[Worker]:
    """A worker over the HTTP API of a service, for networks without the database."""
    from stepkeep.definition.python.registry import default_registry
    from stepkeep.worker.process import devote_process
    from stepkeep.worker.remote.start import remote_worker
    from stepkeep.worker.settings import Settings as WorkerSettings

    address, chosen = service_address(server), policies.options()
    key = key_reader(settings)
    async with remote_worker(
        address, key, default_registry, settings=WorkerSettings(**log), **chosen, **options
    ) as worker:
        devote_process()
        said = _handlers(default_registry, worker.kinds)
        warn(f"worker of the service {address} serves with {places}; {said}")
        yield worker


def _heed_no_more_signals() -> None:
    """A signal after the drain ends nothing: it would cut off the last archives and state files."""
    loop = asyncio.get_running_loop()
    for which in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(which, warn, "already stopping: archives and state files are written")


@asynccontextmanager
async def _state_files(engine: AsyncEngine, folder: str | None) -> AsyncIterator[None]:
    """Keep state files current meanwhile, and write them once more at the end."""
    if folder is None:
        yield
        return
    from stepkeep.operations.logs.state_export import StateFolder

    files = StateFolder(engine.transactor, Path(folder), tenant=engine.tenant)
    files.prepare()

    async def keep() -> None:
        async for _ in files.follow():
            continue

    keeping = asyncio.create_task(keep(), name="state files")
    try:
        yield
    finally:
        files.stop()
        await asyncio.gather(keeping, return_exceptions=True)
        try:
            await files.write()
        except StepkeepError as problem:
            warn(f"the state files in {folder} are not complete, which the next export makes up for: {problem}")


@asynccontextmanager
async def _signed_heads(engine: AsyncEngine, key: SigningKey | None) -> AsyncIterator[None]:
    """Sign the heads of finished runs meanwhile, and once more at the end."""
    if key is None:
        yield
        return
    from stepkeep.evidence.heads import HeadSweeper

    sweeper = HeadSweeper(engine.transactor, key, tenant=engine.tenant)

    def print_signed(signed: int) -> None:
        if signed:
            warn(f"the heads of {signed} finished runs are signed with key {key.id}")

    async def keep() -> None:
        async for signed in sweeper.follow():
            print_signed(signed)

    keeping = asyncio.create_task(keep(), name="signed heads")
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        with suppress(StepkeepError):  # the database is away; the next sweep makes up for it
            print_signed(await sweeper.sweep())


def _listen(host: str, port: int) -> socket.socket:
    from importlib.util import find_spec

    if find_spec("prometheus_client") is None or find_spec("uvicorn") is None:
        raise InvalidInput("--metrics-port needs more libraries. Install them: pip install 'stepkeep[server]'.")
    from stepkeep.network.listening import listen

    return listen(host, port)


@asynccontextmanager
async def _metrics(engine: AsyncEngine, worker: Worker, listener: socket.socket | None) -> AsyncIterator[None]:
    """Show metrics and health on this socket meanwhile."""
    if listener is None:
        yield
        return
    from stepkeep.metrics.port import open_worker_port
    from stepkeep.network.listening import address_of

    async with open_worker_port(listener, engine.transactor, worker, engine.tenant):
        warn(f"metrics are on {address_of(listener)}/metrics")
        yield


def require_remote(
    settings: Settings, state_dir: str | None, metrics_port: int | None, sign_with: Path | None, delete_expired: bool
) -> None:
    """Refuse options that need the database, and a worker without a key."""
    given = {
        "--state-dir": state_dir,
        "--metrics-port": metrics_port,
        "--sign-with": sign_with,
        "--delete-expired": delete_expired or None,
    }
    for option, value in given.items():
        if value is not None:
            raise InvalidInput(f"{option} needs the database: give it to a worker with --db.")
    required_key(settings)


def key_reader(settings: Settings) -> Callable[[], str]:
    """Reads the key anew for each request, so that a key in a file can be replaced without a restart."""
    from stepkeep.operations.access import parse_key

    known = ""

    def read() -> str:
        nonlocal known
        key = read_key(settings) or ""
        if key != known:
            parse_key(key)
            known = key
        return key

    read()
    return read


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Until the worker heeds signals itself, one ends the task: nothing is held yet that would have to be drained."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for which in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(which, task.cancel)
    try:
        yield
    finally:
        for which in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(which)
