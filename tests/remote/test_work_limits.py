"""A key that is limited to queues and handlers works on these alone, over HTTP and with the database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import InvalidInput, NotAllowed
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.people.people_journal import Change, record
from tests.api.stage import TENANT, Stage, on, told
from tests.remote.test_remote_worker import Plain, ended, start, working

PAY = sk.Workflow("pay")
PAY.step("pay", "bank.pay", queue="bank")
MAIL = sk.Workflow("mail")
MAIL.step("mail", "post.mail")
BOTH = sk.Workflow("both")
BOTH.step("mail", "post.mail")
BOTH.step("pay", "bank.pay", queue="bank", after="mail")


def registry() -> Registry:
    made = Registry()
    for name in ("bank.pay", "post.mail"):
        made.register(HandlerSpec(name=name, function=lambda name=name: name))
    return made


@asynccontextmanager
async def limited(url: str) -> AsyncIterator[tuple[Stage, httpx2.AsyncClient, str, str]]:
    """Act on a service with a key that works on the queue bank alone, and one for the handler post.mail alone."""
    async with on(url) as stage:
        await stage.publish(PAY, MAIL, BOTH)
        keys = [
            await stage.key("work", owner="bob", queues=["bank"]),
            await stage.key("work", owner="bob", handlers=["post.mail"]),
        ]
        async with stage.serving(await stage.key()) as client:
            yield stage, client, *keys


def as_(client: httpx2.AsyncClient, key: str) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.AsyncClient(base_url=client.base_url, headers=headers, timeout=60)


async def test_a_limited_key_sees_and_claims_its_queues_alone(database_url: str) -> None:
    async with (
        limited(database_url) as (_stage, client, bank, post),
        as_(client, bank) as mine,
        as_(client, post) as other,
    ):
        queues = (await mine.get("/work/queues")).json()["queues"]
        assert [(one["name"], one["group"]) for one in queues] == [("bank.pay", "bank")]
        everything = (await client.get("/work/queues")).json()["queues"]
        [foreign] = [one["number"] for one in everything if one["name"] == "post.mail"]
        worker = await Plain.registered(mine)
        await start(client, "mail")
        run = await start(client, "pay")
        for wanted in ({"queues": [foreign]}, {"handlers": ["bank.pay"], "groups": ["", "bank"]}):
            refused = told(await worker.post("claim", {"slots": 4, **wanted}), 403, "not_allowed")
            assert (refused["rule"], "limited to queue bank" in refused["detail"]) == ("work_limits", True)
        [claim] = await worker.claim("bank.pay", "post.mail")
        assert claim["run_id"] == run
        poster = await Plain.registered(other)
        named = await poster.post("claim", {"slots": 4, "handlers": ["bank.pay", "post.mail"]})
        assert told(named, 403, "not_allowed")["rule"] == "work_limits"
        [mail] = await poster.claim("post.mail")
        assert mail["step"] == "mail"


async def test_a_chained_claim_after_a_report_keeps_to_the_limits(database_url: str) -> None:
    async with limited(database_url) as (_stage, client, _bank, post), as_(client, post) as mine:
        worker = await Plain.registered(mine)
        await start(client, "both")
        [mail] = await worker.claim("post.mail")
        name = {field: mail[field] for field in ("run_id", "no", "fence")}
        body = {"reports": [{**name, "outcome": {"kind": "completed"}}]}
        wanted = {"slots": 2, "handlers": ["bank.pay"]}
        told(await worker.post("report", {**body, "claim": wanted}), 403, "not_allowed")
        answer = await worker.report(mail, {"kind": "completed"}, claim={"slots": 2, "handlers": ["post.mail"]})
        assert answer["claims"] == []


async def test_a_limited_key_does_not_find_the_workers_of_wider_keys_of_its_owner(database_url: str) -> None:
    """Nor of keys with other limits, on any route; a rotated key has the limits of the old one, and finds them."""

    async with limited(database_url) as (stage, client, bank, post):
        wide = await stage.key("work", owner="bob")
        async with as_(client, wide) as all_, as_(client, post) as mine, as_(client, bank) as other:
            worker = await Plain.registered(all_)
            run = await start(client, "pay")
            [held] = await worker.claim("bank.pay")
            name = {field: held[field] for field in ("run_id", "no", "fence")}
            own = await Plain.registered(mine)
            assert own.id != worker.id
            for caller, found in ((mine, worker.id), (other, own.id), (all_, own.id)):
                seen = Plain(caller, found)
                for what, body in (
                    ("heartbeat", {}),
                    ("drain", {}),
                    ("claim", {"slots": 1, "handlers": []}),
                    ("renew", {"leases": [{**name, "lease_us": 60_000_000}]}),
                    ("report", {"reports": [{**name, "outcome": {"kind": "completed"}}]}),
                    ("checkpoint", {**name, "name": "a", "value": 1}),
                    ("checkpoints", name),
                    ("calls", name),
                    ("inputs", {"runs": [{"run_id": run, "details": True}]}),
                    ("evidence", {"evidence": [{**name, "evidence": {}}]}),
                ):
                    told(await seen.post(what, body), 404, "not_found")
                told(await caller.get(f"/work/workers/{found}/notices"), 404, "not_found")
                told(await caller.delete(f"/work/workers/{found}"), 404, "not_found")
        async with stage.host() as host:
            rotated = await host.keys.rotate(post.split("_")[1])
        assert rotated["key"]["handlers"] == ["post.mail"]
        async with as_(client, rotated["secret"]) as mine:
            assert (await Plain(mine, own.id).post("heartbeat", {})).status_code == 200


async def test_a_remote_worker_offers_and_runs_what_its_key_allows(database_url: str) -> None:
    async with limited(database_url) as (_stage, client, _bank, post):
        run = await start(client, "pay")
        async with working(str(client.base_url), post, registry(), app="post") as worker:
            assert (await ended(client, "mail"))["output"] == "post.mail"
            await worker._membership.publish(worker._offer())
            [row] = (await client.get("/workers")).json()["workers"]
            assert row["id"] == worker.id
            why = (await client.get(f"/runs/{run}/explain")).json()
            assert "no live worker" in str(why).lower() or "no worker" in str(why).lower(), why
        assert (await client.get(f"/runs/{run}")).json()["run"]["state"] == "queued"


async def test_a_local_worker_with_a_limited_key_claims_its_queues_alone(database_url: str) -> None:
    async with limited(database_url) as (stage, client, bank, _post):
        other = await start(client, "mail")
        async with AsyncEngine(stage.url, key=bank, registry=registry()) as engine:
            hosted = await engine.start_worker(concurrency=4)
            assert (await ended(client, "pay"))["output"] == "bank.pay"
            await hosted.stop()
        assert (await client.get(f"/runs/{other}")).json()["run"]["state"] == "queued"


async def test_limits_of_a_key_are_shown_checked_and_no_way_to_take_events(database_url: str) -> None:
    async with limited(database_url) as (stage, client, bank, _post):
        made = await client.post("/api-keys", json={"owner": "bob", "scopes": ["work"], "queues": ["", "bank", ""]})
        assert made.status_code == 201, made.text
        assert (made.json()["key"]["queues"], made.json()["key"]["handlers"]) == (["", "bank"], None)
        listed = (await client.get("/api-keys", params={"owner": "bob"})).json()["keys"]
        assert sorted((one["queues"] or []) for one in listed) == [[], ["", "bank"], ["bank"]]
        told(
            await client.post("/api-keys", json={"owner": "bob", "scopes": ["read"], "queues": ["q"]}),
            400,
            "invalid_input",
        )
        async with stage.host() as host:
            for wrong in ({"queues": []}, {"handlers": [""]}, {"handlers": "bank.pay"}, {"queues": [3]}):
                with pytest.raises(InvalidInput):
                    await host.keys.create("bob", scopes=["work"], **wrong)
            made_keys = [one for one in (await host.users.history("bob")).history if one["event"] == "key_created"]
            assert ["bank"] in [one["detail"].get("queues") for one in made_keys]
        async with AsyncEngine(stage.url, key=bank) as engine:
            with pytest.raises(NotAllowed, match="limited to queue bank"):
                await engine.outbox.take("sink")


async def test_the_schema_keeps_the_limits_of_a_key(database_url: str) -> None:
    async with AsyncEngine(database_url, tenant=TENANT, actor="root") as engine:
        await engine.users.create("bob")
        made = await engine.keys.create("bob", scopes=["work"], queues=["bank"])
        row = await engine.store.people.find_key(made["key"]["id"])
        assert row is not None
        assert (row.queues, row.handlers) == (("bank",), None)

        async def decide(now: int) -> Any:
            return lambda at: Change(event="key_revoked", subject="bob", detail={}, keys=(replace(row, queues=None),))

        with pytest.raises(Exception, match="a key keeps the queues"):
            await record(engine.store, Caller(TENANT, "root"), decide)
