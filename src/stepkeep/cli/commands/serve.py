"""`stepkeep serve`: the HTTP service, until told to stop. Keys name the tenant and the actor of each request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from stepkeep.cli.answering import open_engine
from stepkeep.cli.arguments import Text, finite, opt
from stepkeep.cli.command import program
from stepkeep.cli.inert_log import install_log, install_tracing
from stepkeep.cli.printer import answer, say, warn
from stepkeep.cli.settings import Needs, Settings
from stepkeep.cli.status import SUCCEEDED
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    import socket

    from stepkeep.api.browsers import Browsers
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


@program.command("serve", Needs.DATABASE)
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
