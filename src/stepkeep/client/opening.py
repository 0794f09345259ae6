"""`stepkeep.open`: an engine on a database, or a client of a service, by the URL that is given."""

from __future__ import annotations

import os
from typing import Unpack

from stepkeep.engine.engine import DEFAULT_URL, Engine, EngineOptions
from stepkeep.network.service import is_service_url


def open(  # noqa: A001 - stepkeep.open reads best
    url: str | os.PathLike[str] = DEFAULT_URL, **options: Unpack[EngineOptions]
) -> Engine:
    """Open a database: `sqlite:///file.db` needs nothing else, `postgresql://…` the extra `stepkeep[postgres]`.

    The engine connects when it is first used. Close it with `close`, or use it in a `with` block. A PostgreSQL
    database is migrated by `stepkeep db migrate`, or here with `auto_migrate=True`.

    `https://…` with a `key` opens a service instead: a `Client`, which has the same methods.

    >>> import stepkeep
    >>> @stepkeep.step("hello.greet")
    ... def greet(name: str) -> str:
    ...     return f"Hello, {name}"
    >>> hello = stepkeep.Workflow("hello", version=1)
    >>> _ = hello.step("greet", greet)
    >>> with stepkeep.open("sqlite:///hello.db") as engine:
    ...     print(engine.run(hello, input={"name": "Ada"}).output)
    Hello, Ada
    """
    if is_service_url(url):
        from stepkeep.client.sync_client import Client

        return Client(url, **options)
    return Engine(url, **options)
