"""A run is created and awaited in one request, and the index finds the same route as the framework."""

from __future__ import annotations

from starlette.routing import Match

from stepkeep.api.app import create_app
from stepkeep.api.routing import Admitting
from stepkeep.engine import AsyncEngine
from tests.api.stage import GATED, HELLO, TENANT, on, told


async def test_a_creation_that_waits_answers_with_the_result(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with stage.client(await stage.key("start", "read")) as client:
            body = {"workflow": "hello", "input": {"name": "Ada"}}
            worker = stage.host()
            async with worker:
                await worker.start_worker()
                made = await client.post("/runs?wait=30", json=body, headers={"Idempotency-Key": "k"})
                again = await client.post("/runs?wait=30", json=body, headers={"Idempotency-Key": "k"})
        run = made.json()["run_id"]
        result = {"run_id": run, "state": "succeeded", "finished": True, "output": "Hello, Ada", "error": None}
        assert (made.status_code, made.json()) == (201, {"run_id": run, "created": True, "result": result})
        assert (again.status_code, again.json()) == (200, {"run_id": run, "created": False, "result": result})
        assert made.headers["location"] == f"/runs/{run}"


async def test_a_creation_whose_time_is_over_answers_with_the_state(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(GATED)
        async with stage.client(await stage.key("start", "read")) as client:
            made = await client.post("/runs?wait=0", json={"workflow": "gated"})
            assert made.status_code == 201
            assert made.json()["result"]["finished"] is False
            told(await client.post("/runs?wait=61", json={"workflow": "gated"}), 400, "invalid_input")


async def test_a_key_that_may_not_read_creates_nothing_with_wait(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with stage.client(await stage.key("start")) as client:
            told(await client.post("/runs?wait=1", json={"workflow": "hello"}), 403, "not_allowed")
        async with stage.host(TENANT) as host:
            assert (await host.runs())["runs"] == []


def test_the_index_finds_the_route_that_the_framework_finds() -> None:
    app = create_app(AsyncEngine("sqlite:///unused.db"))
    routes = [one for one in app.http.routes if isinstance(one, Admitting)]
    for route in routes:
        for path in (route.path_format, route.path_format.replace("{", "a").replace("}", "b")):
            for method in ("GET", "POST", "PUT", "DELETE"):
                scope = {"type": "http", "method": method, "path": path, "headers": []}
                full = [one for one in routes if one.matches(scope)[0] is Match.FULL]
                found = app.index.find(scope)
                if found is not None:
                    assert found[0] is full[0], (method, path)
                else:
                    assert not full or ":path}" in full[0].path, (method, path)
