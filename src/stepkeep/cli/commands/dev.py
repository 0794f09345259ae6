"""`stepkeep dev`: the HTTP service and a worker on SQLite in one process, with a key that is printed."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.answering import open_engine
from stepkeep.cli.arguments import Apps, Capabilities, Concurrency, Threads, opt
from stepkeep.cli.command import program
from stepkeep.cli.commands.serve import PORT, Drain, Grace, Host, LogLevel, Port, refuse_identity, require_server
from stepkeep.cli.inert_log import install_log, install_tracing
from stepkeep.cli.policies import Policies
from stepkeep.cli.printer import answer, quiet_stdout, say, warn
from stepkeep.cli.session import load_handlers
from stepkeep.cli.settings import Needs, Settings
from stepkeep.cli.status import SUCCEEDED
from stepkeep.kernel.errors import InvalidInput, NotAllowed

if TYPE_CHECKING:
    import socket

    from stepkeep.engine import AsyncEngine

OWNER = "dev"
KEY_FILE = "dev.key"
TOUR = "stepkeep.cli.demo.first_minute"
"""The handlers of the tour; a run of it may wait in the database from an earlier start."""
LOG_LINES = 200
"""How many of the last lines of `ctx.logger` the pages can show of an attempt."""


@program.command("dev", Needs.DATABASE, policies=True)
def dev(
    settings: Settings,
    policies: Policies,
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
    policies: Policies,
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
    from stepkeep.worker.settings import Settings as WorkerSettings

    async with open_engine(settings, policies, creates=True) as engine:
        file = Path(settings.db.removeprefix("sqlite:///")).parent / KEY_FILE
        key = await _key(engine, file, new_key)
        given: dict[str, Any] = {**options, "settings": WorkerSettings(log_lines=LOG_LINES)}
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
