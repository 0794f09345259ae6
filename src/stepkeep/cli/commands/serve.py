"""`stepkeep serve` and `dev`: the HTTP service, until told to stop; `dev` has a worker, SQLite and a key beside it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.answering import open_engine
from stepkeep.cli.arguments import Apps, Capabilities, Concurrency, Text, Threads, finite, opt
from stepkeep.cli.command import program
from stepkeep.cli.policies import StepPolicies
from stepkeep.cli.printer import SUCCEEDED, answer, quiet_stdout, say, warn
from stepkeep.cli.session import load_handlers
from stepkeep.cli.settings import CommandNeeds, Settings
from stepkeep.cli.streams import install_log, install_tracing
from stepkeep.kernel.errors import InvalidInput, NotAllowed

if TYPE_CHECKING:
    import socket

    from stepkeep.api.browsers import Browsers
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.people.quotas import Quotas


PORT = 8321

Host = Annotated[str, opt("--host", "ADDRESS", "The address to listen on.")]
Port = Annotated[int, opt("--port", "The port to listen on; 0 takes a free one.", min=0, max=65535)]
Drain = Annotated[
    float,
    opt(
        "--drain",
        "SECONDS",
        "How long open connections may end by themselves when it stops.",
        min=0,
        max=3600,
        callback=finite,
    ),
]
Grace = Annotated[
    float,
    opt("--grace", "SECONDS", "How long what is under way may take when it stops.", min=1, max=86_400, callback=finite),
]
PublicUrl = Annotated[
    Text,
    opt(
        "--public-url",
        "URL",
        "The address at which browsers reach it, such as https://flows.example.com.",
        envvar="STEPKEEP_PUBLIC_URL",
    ),
]
MaxRuns = Annotated[
    int | None,
    opt(
        "--max-concurrent-runs",
        "N",
        "Unfinished runs of each key that has no quota of its own.",
        bounds_of="keys.create max_concurrent_runs",
    ),
]
MaxRequests = Annotated[
    int | None,
    opt(
        "--max-requests-per-min",
        "N",
        "Requests a minute of each key that has no quota of its own, in this process.",
        bounds_of="keys.create max_requests_per_min",
    ),
]
LogLevel = Annotated[str, opt("--log-level", "LEVEL", "debug, info, warning or error.")]
MetricsPort = Annotated[
    int | None,
    opt("--metrics-port", "Show metrics and health on this port, without a key; 0 takes a free one.", min=0, max=65535),
]
MetricsHost = Annotated[str, opt("--metrics-host", "ADDRESS", "The address of the port of metrics.")]
LogFormat = Annotated[str, opt("--log-format", "FORMAT", "text, or json: one object per line.")]


@program.command("serve", CommandNeeds.DATABASE)
def serve(
    settings: Settings,
    host: Host = "127.0.0.1",
    port: Port = PORT,
    fd: Annotated[
        int | None, opt("--fd", "Serve on this open socket, which a supervisor passes on.", min=0, max=65535)
    ] = None,
    drain: Drain = 2.0,
    grace: Grace = 30.0,
    public_url: PublicUrl = None,
    max_concurrent_runs: MaxRuns = None,
    max_requests_per_min: MaxRequests = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> int:
    """Serve the HTTP API until SIGTERM or SIGINT, then drain. Workers are processes of their own."""
    require_server()
    refuse_identity(settings, "serve")
    install_log(log_level, log_format)
    install_tracing("stepkeep-service")
    from stepkeep.api.browsers import Browsers
    from stepkeep.api.oidc import Provider, read_oidc
    from stepkeep.api.server import listen, run
    from stepkeep.operations.people.quotas import Quotas

    browsers = Browsers(public_url)
    if (found := read_oidc(os.environ)) is not None:
        require_oidc()
        browsers.provider = Provider(found)
    listener = listen(host, port, fd)
    metrics = None if metrics_port is None else listen(metrics_host, metrics_port)
    quotas = Quotas(max_concurrent_runs=max_concurrent_runs, max_requests_per_min=max_requests_per_min)
    run(_serve(settings, (listener, metrics), browsers, quotas, drain, grace))
    return SUCCEEDED


async def _serve(
    settings: Settings,
    sockets: tuple[socket.socket, socket.socket | None],
    browsers: Browsers,
    quotas: Quotas,
    drain: float,
    grace: float,
) -> None:
    from stepkeep.api.app import create_app
    from stepkeep.api.health import open_metrics_port
    from stepkeep.api.server import address_of
    from stepkeep.api.server import serve as run_server
    from stepkeep.worker.process import devote_process

    listener, metrics = sockets
    async with open_engine(settings, wait_for_database=True, creates=True) as engine:
        address, shown = address_of(listener), None if metrics is None else address_of(metrics)

        def announce() -> None:
            if settings.json:
                more = {} if shown is None else {"metrics": f"{shown}/metrics"}
                answer({"service": {"address": address, "row_level_security": engine.store.is_confined, **more}})
            else:
                say(f"the service listens on {address}")
                if engine.store.is_confined:
                    say("row-level security keeps each transaction to one tenant")
                if shown is not None:
                    say(f"metrics are on {shown}/metrics")
                say(f"make a key with: {settings.command('keys', 'create', 'NAME', '--scope', 'read')}")

        app = create_app(engine, browsers=browsers, quotas=quotas)
        devote_process()
        async with open_metrics_port(metrics, app.service):
            await run_server(app, listener, drain_seconds=drain, grace_seconds=grace, told=announce)
    warn("the service has drained and stopped")


def require_server() -> None:
    """Refuse the command where its libraries are not installed."""
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("starlette", "uvicorn", "prometheus_client")):
        raise InvalidInput("the HTTP service needs more libraries. Install them: pip install 'stepkeep[server]'.")


def require_oidc() -> None:
    """Refuse sign-in by OIDC where its library is not installed."""
    from importlib.util import find_spec

    if find_spec("joserfc") is None:
        raise InvalidInput("sign-in by OIDC needs one more library. Install it: pip install 'stepkeep[oidc]'.")


def refuse_identity(settings: Settings, command: str) -> None:
    """Each request brings its own key, so that the process has neither tenant nor key."""
    if settings.tenant != "default" or settings.key_file is not None:
        raise InvalidInput(
            f"{command} takes neither --tenant nor --key-file: each request names its tenant by its key."
        )


OWNER = "dev"
KEY_FILE = "dev.key"
TOUR = "stepkeep.cli.demo.first_minute"
"""The handlers of the tour; a run of it may wait in the database from an earlier start."""


@program.command("dev", CommandNeeds.DATABASE, policies=True)
def dev(
    settings: Settings,
    policies: StepPolicies,
    app: Apps = None,
    host: Host = "127.0.0.1",
    port: Port = PORT,
    concurrency: Concurrency = 100,
    threads: Threads = 16,
    capability: Capabilities = None,
    new_key: Annotated[
        bool, opt("--new-key", "Make a new key and revoke the one that is kept beside the database.")
    ] = False,
    no_tour: Annotated[bool, opt("--no-tour", "Start no run of the tour in a new database.")] = False,
    no_open: Annotated[bool, opt("--no-open", "Do not open the web pages in a browser.")] = False,
    drain: Drain = 0.2,
    grace: Grace = 5.0,
    log_level: LogLevel = "warning",
) -> int:
    """Serve the HTTP API with a worker, on SQLite, in this process. The key for it is printed."""
    require_server()
    refuse_identity(settings, "dev")
    if not settings.db.startswith("sqlite:///"):
        raise InvalidInput("dev is for SQLite. For PostgreSQL start `stepkeep serve` and `stepkeep worker`.")
    install_log(log_level)
    install_tracing("stepkeep-dev")
    from stepkeep.api.server import listen

    with quiet_stdout(settings.json):
        load_handlers([*(app or []), TOUR])
    options = {"concurrency": concurrency, "threads": threads, "capabilities": capability or []}
    asyncio.run(_dev(settings, policies, listen(host, port), options, new_key, drain, grace, not no_open, not no_tour))
    return SUCCEEDED


async def _dev(
    settings: Settings,
    policies: StepPolicies,
    listener: socket.socket,
    options: dict[str, object],
    new_key: bool,
    drain: float,
    grace: float,
    opens: bool,
    tour: bool,
) -> None:
    from stepkeep.api.app import create_app
    from stepkeep.api.server import address_of, serve

    async with open_engine(settings, policies, creates=True) as engine:
        file = Path(settings.db.removeprefix("sqlite:///")).parent / KEY_FILE
        key = await _key(engine, file, new_key)
        given: dict[str, Any] = dict(options)
        worker = await engine.start_worker(app="dev", **given)
        if tour:
            from stepkeep.cli.demo.first_minute import begin

            await begin(engine)
        address = address_of(listener)
        application = create_app(engine, workers=[worker])
        link = f"{address}/ui#code={application.service.links.make(key)}"

        def announce() -> None:
            if settings.json:
                answer({"service": {"address": address, "key": key, "key_file": str(file), "pages": link}})
                return
            say(f"the service listens on {address}, with a worker in this process")
            say(f"key: {key} (kept in {file})")
            say(f"pages: {link} (signs in once)")
            say(f"try: curl -H 'Authorization: Bearer {key}' {address}/status")
            if opens and _has_screen():
                # In a thread of its own: some browsers return only when they are closed.
                threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()

        await serve(application, listener, drain_seconds=drain, grace_seconds=grace, told=announce)
    warn("stopped")


def _has_screen() -> bool:
    """Whether a person sits at a screen here: a terminal, and a desktop that can show a browser."""
    has_desktop = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return sys.stdout.isatty() and has_desktop


async def _key(engine: AsyncEngine, file: Path, renew: bool) -> str:
    """The key in this file, if it is valid; else a new one, which is put there. Only this user can read the file."""
    from stepkeep.operations.access import Access, Scope, parse_key

    kept = _read(file)
    if kept:
        try:
            credential = parse_key(kept)
            await Access(engine.store, "default", OWNER, credential).open()
        except (InvalidInput, NotAllowed):
            kept = ""
        else:
            if not renew:
                return kept
            await engine.keys.revoke(credential.id)
    found = await engine.users.list(limit=10_000)
    if OWNER not in {one.name for one in found.users}:
        await engine.users.create(OWNER, display="stepkeep dev")
    made = await engine.keys.create(OWNER, scopes=[scope.value for scope in Scope])
    _write_private(file, made.secret)
    return made.secret


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""


def _write_private(file: Path, text: str) -> None:
    beside = file.with_name(f"{file.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.writelines((text, "\n"))
    beside.replace(file)
