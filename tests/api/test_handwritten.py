"""Routes with a function of their own read bodies like operations: every mistake is told at once, with its place."""

from __future__ import annotations

from typing import Any

import pytest

from stepkeep.api import handwritten
from stepkeep.api.handwritten import Routes
from tests.api.stage import on
from tests.suites import first_on

DIGEST = "0" * 32


async def errors_of(database_url: str, path: str, body: Any) -> list[str]:
    async with on(database_url) as stage, stage.client(await stage.key("work")) as client:
        answer = await client.post(path, json=body)
        assert answer.status_code == 400, answer.text
        return [f"{one['at']}: {one['message']}" for one in answer.json()["errors"]]


@first_on("sqlite")
async def test_a_body_tells_all_its_mistakes_with_their_places(database_url: str) -> None:
    body = {"instance": f"{DIGEST[:16]}\n", "pid": -1, "capacity": "8", "capabilities": ["gpu", 7], "colour": "red"}
    assert await errors_of(database_url, "/work/workers", body) == [
        "body.app: Field required",
        "body.instance: String should match pattern '^[0-9a-f]{8,32}$'",
        "body.pid: Input should be greater than or equal to 0",
        "body.capacity: Input should be a valid integer",
        "body.capabilities.1: Input should be a valid string",
        "body.colour: Extra inputs are not permitted",
    ]


@first_on("sqlite")
async def test_a_value_inside_another_is_read_and_checked_like_the_whole(database_url: str) -> None:
    call = {"kind": "step", "name": "n", "digest": DIGEST, "step": {}}
    outcome = {
        "kind": "suspended",
        "calls": [{**call, "arguments": "x" * 300_000}, {**call, "digest": "d"}],
        "seen": -1,
    }
    reports = [{"run_id": "r", "no": 0, "outcome": outcome}, {"run_id": "r", "no": 2**31, "fence": 1, "outcome": []}]
    assert await errors_of(database_url, "/work/workers/w/report", {"reports": reports}) == [
        "body.reports.0.fence: Field required",
        "body.reports.0.outcome.calls.0: arguments cannot be stored: 300002 bytes of JSON, and 262144 are the limit",
        "body.reports.0.outcome.calls.1.digest: String should match pattern '^[0-9a-f]{32}$'",
        "body.reports.0.outcome.seen: Input should be greater than or equal to 0",
        "body.reports.1.no: Input should be less than or equal to 2147483647",
        "body.reports.1.outcome: Input should be a valid dictionary or object to extract fields from",
    ]


@first_on("sqlite")
async def test_a_body_that_is_no_object_is_refused(database_url: str) -> None:
    told = ["body: Input should be a valid dictionary or object to extract fields from"]
    assert await errors_of(database_url, "/work/workers", []) == told


def test_a_function_whose_arguments_cannot_be_read_makes_no_route(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handwritten, "ROUTES", {})
    routes = Routes("Odd")

    @routes("GET /odd", "show", "show_odd", "Show what is odd")
    async def odd(of: Routes) -> str:
        return str(of)

    with pytest.raises(LookupError, match="are not read"):
        _ = routes.routes
