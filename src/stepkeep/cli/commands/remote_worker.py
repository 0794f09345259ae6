"""`stepkeep worker --server`: the same worker over the HTTP API of a service, for networks without the database."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stepkeep.cli.asking import read_key, required_key, service_address
from stepkeep.cli.policies import Policies
from stepkeep.cli.printer import warn
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput


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


async def serve_remote(
    settings: Settings,
    policies: Policies,
    server: str,
    limits: tuple[int, int, float, int],
    options: dict[str, Any],
) -> str | None:
    """Work until a signal; returns the id of the worker."""
    from stepkeep.definition.registry import default_registry
    from stepkeep.worker.process import devote_process
    from stepkeep.worker.remote.start import remote_worker
    from stepkeep.worker.settings import Settings as WorkerSettings

    concurrency, threads, grace, keep_log = limits
    address = service_address(server)
    with interrupted_by_signals():
        try:
            async with remote_worker(
                address,
                key_reader(settings),
                default_registry,
                concurrency=concurrency,
                threads=threads,
                settings=WorkerSettings(grace_seconds=grace, first_publish_seconds=0.0, log_lines=keep_log),
                **policies.options(),
                **options,
            ) as worker:
                devote_process()
                handlers = ", ".join(spec.name for spec in default_registry) or "none"
                places = f"{concurrency} places and {min(threads, concurrency)} threads"
                off = "" if "command" in worker.kinds else "; commands are off (--allow-commands TENANT)"
                warn(f"worker of the service {address} serves with {places}; handlers: {handlers}{off}")
                await worker.serve(signals=True)
                warn(f"worker {worker.id} has drained and stopped")
                return worker.id
        except asyncio.CancelledError:
            warn("stopped before it served: nothing was claimed")
            return None


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
