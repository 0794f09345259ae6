"""Triggers over HTTP: what a body and a header say twice, and what stands beside a trigger."""

from __future__ import annotations

from tests.api.stage import HELLO, on, told
from tests.suites import first_on


@first_on("sqlite")
async def test_an_idempotency_key_counts_where_the_body_has_no_key_of_its_own(database_url: str) -> None:
    async with on(database_url) as stage:
        async with stage.host() as host:
            await host.publish(HELLO)
            await host.triggers.add("hourly", "hello", every="1h")
            await host.triggers.add("paid", "hello", event="order.paid", overlap="allow")
        async with stage.client(await stage.key()) as client:
            headers = {"Idempotency-Key": "k-1"}
            for body, moment in (({}, "k-1"), (None, "k-1"), ({"key": None}, "k-1"), ({"key": "b-1"}, "b-1")):
                fired = await client.post("/triggers/hourly/fire", json=body, headers=headers)
                assert fired.json()["moment"] == f"hand:{moment}"
            for body, event in (({"event": "order.paid"}, "k-1"), ({"event": "order.paid", "id": "e-2"}, "e-2")):
                assert (await client.post("/events", json=body, headers=headers)).json()["event"] == event
            long = await client.post("/events", json={"event": "x"}, headers={"Idempotency-Key": "k" * 256})
            assert told(long, 400, "invalid_input")["errors"] == [
                {"at": "header.Idempotency-Key", "message": "String should have at most 255 characters"}
            ]


@first_on("sqlite")
async def test_the_words_of_a_trigger_name_nothing_that_stands_beside_it(database_url: str) -> None:
    async with on(database_url) as stage:
        async with stage.host() as host:
            await host.publish(HELLO)
        async with stage.client(await stage.key()) as client:
            for word in ("name", "workflow", "by", "self"):
                body = {"name": "hourly", "workflow": "hello", "trigger": {"every": "1h", word: "eve"}}
                answer = told(await client.post("/triggers", json=body), 400, "invalid_input")
                assert f"{word} is not part of the trigger: it stands beside it" in answer["detail"]
        async with stage.host() as host:
            assert (await host.triggers.list()).triggers == []


@first_on("sqlite")
async def test_as_many_firings_and_moments_are_shown_as_in_python(database_url: str) -> None:
    async with on(database_url) as stage:
        async with stage.host() as host:
            await host.publish(HELLO)
            await host.triggers.add("hourly", "hello", every="1h")
        async with stage.client(await stage.key()) as client:
            assert len((await client.get("/triggers/hourly/next?limit=1000")).json()["next"]) == 1000
            assert (await client.get("/triggers/hourly?firings=1000")).status_code == 200
            for address in ("/triggers/hourly/next?limit=1001", "/triggers/hourly?firings=1001"):
                told(await client.get(address), 400, "invalid_input")
