"""Runs the application in a server that stops without failing a request.

Asked to stop, the process is no longer ready and takes no new connection; answers tell their clients to close theirs,
streams end, and what is under way finishes. A socket that a supervisor passes on (`fd`) stays open in the supervisor,
so that connections wait there for the next process. TLS is left to a proxy. `stepkeep serve` and `dev` call it.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

import uvicorn

from stepkeep.api.app import Application
from stepkeep.api.protocol import MAX_INCOMPLETE_BYTES, Protocol, most_connections
from stepkeep.network.listening import BACKLOG, address_of, listen
from stepkeep.operations.aside import rest_between, use_children

__all__ = ["Server", "address_of", "listen", "make_server", "run", "serve"]

KEEP_ALIVE_SECONDS = 75
POLL_SECONDS = 0.02
SWITCH_SECONDS = 0.0005
"""After how long a thread that computes lets the event loop go on; 5 ms by default, several times for each request."""


class Server(uvicorn.Server):
    """A server that drains: connections are closed by their own next answer, or when they have been idle."""

    def __init__(self, config: uvicorn.Config, app: Application, drain_seconds: float) -> None:
        super().__init__(config)
        self._application, self._drain_seconds = app, drain_seconds
        self.told: Callable[[], None] = lambda: None
        """Called once the server accepts connections."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._application.service.metrics.begin()
            self.told()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn would raise the signal again at the end; the command has an exit status of its own.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.service.stopping.set()
        for server in self.servers:
            server.close()
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._drain_seconds
        while self.server_state.connections and loop.time() < ends and not self.force_exit:  # noqa: ASYNC110 - the server keeps a set
            await asyncio.sleep(POLL_SECONDS)
        await super().shutdown(sockets)
        await self._application.service.close()


def make_server(app: Application, *, drain_seconds: float = 0.0, grace_seconds: float = 1.0) -> Server:
    """A server that is not running yet."""
    config = uvicorn.Config(
        app,
        loop="none",
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(grace_seconds)),
        h11_max_incomplete_event_size=MAX_INCOMPLETE_BYTES,
    )
    return Server(config, app, drain_seconds)


async def serve(
    app: Application,
    listener: socket.socket,
    *,
    drain_seconds: float,
    grace_seconds: float,
    told: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain. What is still under way after the grace period is cut off."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the soft limit is often 1,024
    app.service.load.fit(most_connections())
    sys.setswitchinterval(SWITCH_SECONDS)
    rest_between(app.service.load.turns.rest_times)
    use_children()
    server = make_server(app, drain_seconds=drain_seconds, grace_seconds=grace_seconds)
    server.told = told
    await server.serve(sockets=[listener])


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a process that only serves: on uvloop where it is installed, which takes less CPU for each request."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        asyncio.run(main)
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)
