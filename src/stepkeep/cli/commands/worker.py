"""`stepkeep worker`: serve until told to stop, then drain. The process that deployments run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from stepkeep.cli.arguments import Apps, Capabilities, Concurrency, Threads, finite
from stepkeep.cli.inert_log import install_log
from stepkeep.cli.policies import Policies
from stepkeep.cli.printer import answer, quiet_stdout, warn
from stepkeep.cli.session import load_handlers, open_engine
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import SUCCEEDED


def worker(
    settings: Settings,
    policies: Policies,
    app: Apps = None,
    concurrency: Concurrency = 1000,
    threads: Threads = 64,
    capability: Capabilities = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="NAME", help="Serve only these queues; may be repeated."),
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What this worker's id begins with.")] = "worker",
    grace: Annotated[
        float,
        typer.Option(
            "--grace",
            min=0,
            max=86_400,
            callback=finite,
            metavar="SECONDS",
            help="How long running steps may take when it stops.",
        ),
    ] = 30.0,
    log_level: Annotated[
        str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
    ] = "info",
    log_format: Annotated[
        str, typer.Option("--log-format", metavar="FORMAT", help="text, or json: one object per line.")
    ] = "text",
    keep_log: Annotated[
        int,
        typer.Option("--keep-log", min=0, max=1000, help="Keep the last N lines of ctx.logger with each attempt."),
    ] = 0,
) -> int:
    """Run steps until SIGTERM or SIGINT, then finish what runs and hand back the rest."""
    install_log(log_level, log_format)
    load_handlers(app or [])
    with quiet_stdout(settings.json):
        worker_id = asyncio.run(
            _serve(settings, policies, concurrency, threads, capability or [], queue, name, grace, app or [], keep_log)
        )
    if settings.json:
        answer({"worker": {"id": worker_id, "state": "shutdown"}})
    return SUCCEEDED


async def _serve(
    settings: Settings,
    policies: Policies,
    concurrency: int,
    threads: int,
    capabilities: list[str],
    queues: list[str] | None,
    name: str,
    grace: float,
    apps: list[str],
    keep_log: int,
) -> str | None:
    from stepkeep.worker.process import devote_process
    from stepkeep.worker.settings import Settings as WorkerSettings

    with _interrupted_by_signals():
        try:
            async with open_engine(
                settings, policies, wait_for_database=True, creates=True, operation="serve"
            ) as engine:
                devote_process()
                worker = engine.worker(
                    app=name,
                    concurrency=concurrency,
                    threads=threads,
                    capabilities=capabilities,
                    queues=queues or None,
                    settings=WorkerSettings(grace_seconds=grace, first_publish_seconds=0.0, log_lines=keep_log),
                    apps=apps,
                )
                handlers = ", ".join(spec.name for spec in engine.registry) or "none"
                places = f"{concurrency} places and {min(threads, concurrency)} threads"
                served = ", ".join(name or "(default)" for name in queues) if queues else "all"
                skills = f"; capabilities: {', '.join(capabilities)}" if capabilities else ""
                warn(
                    f"worker of tenant {engine.tenant} serves with {places}; queues: {served}{skills}; "
                    f"handlers: {handlers}"
                )
                await worker.serve(signals=True)
                warn(f"worker {worker.id} has drained and stopped")
                return worker.id
        except asyncio.CancelledError:
            warn("stopped before it served: nothing was claimed")
            return None


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
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
