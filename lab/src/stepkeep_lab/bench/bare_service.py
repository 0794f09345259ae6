"""A FastAPI application that inserts one row, durably, and does nothing else: what a start cannot be cheaper than.

A process of its own: `python -m stepkeep_lab.bench.bare_service URL DESCRIPTOR`, with a PostgreSQL URL or the path of a
SQLite file, and the descriptor of a listening socket. `http_service` starts it.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import apsw
import asyncpg
import msgspec
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

Insert = Callable[[str, str, str], Awaitable[None]]


class New(BaseModel):
    """What a client sends."""

    workflow: str
    input: dict[str, Any]


def sqlite(path: str) -> Insert:
    """Inserts into a new file, with the durability that the engine has."""
    database = apsw.Connection(path)
    database.execute("pragma journal_mode = wal; pragma synchronous = full")
    database.execute("create table bare_runs (id text primary key, workflow text, input text)")

    async def insert(made: str, workflow: str, given: str) -> None:
        database.execute("insert into bare_runs values (?, ?, ?)", (made, workflow, given))

    return insert


def postgres(url: str) -> Insert:
    """Inserts through a pool."""
    pool: Any = None

    async def insert(made: str, workflow: str, given: str) -> None:
        nonlocal pool
        if pool is None:
            pool = await asyncpg.create_pool(url, min_size=1, max_size=10)
            await pool.execute("create table bare_runs (id text primary key, workflow text, input text)")
        await pool.execute("insert into bare_runs values ($1, $2, $3)", made, workflow, given)

    return insert


def application(insert: Insert) -> FastAPI:
    """One route."""
    app = FastAPI()

    @app.post("/runs", status_code=201)
    async def create(body: New) -> dict[str, str]:
        made = str(uuid4())
        await insert(made, body.workflow, msgspec.json.encode(body.input).decode())
        return {"run_id": made}

    return app


if __name__ == "__main__":
    url, descriptor = sys.argv[1], int(sys.argv[2])
    insert = postgres(url) if url.startswith("postgresql:") else sqlite(url)
    # The socket, not its descriptor: the server would take it for a Unix socket, and answers would wait 40 ms.
    config = uvicorn.Config(application(insert), log_level="error", access_log=False)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])
