"""What an idempotency key stands for: a version that the caller did not name is no part of it, and a difference is
named."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

import stepkeep as sk
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.definitions.publish import Newest
from stepkeep.operations.pipeline.start import StartRequest
from stepkeep.store.change import IdempotencyKey
from tests.operations.test_continuations import on


def flow(version: int) -> sk.Workflow:
    made = sk.Workflow("keyed", version=version, description=f"version {version}")
    made.step("one", "keyed.elsewhere", inputs={})
    return made


async def test_a_newer_version_is_no_other_request_unless_a_version_was_named(database_url: str) -> None:
    async with on(database_url) as engine:
        first = await engine.publish(flow(1))
        by_name = await engine.start("keyed", {"n": 1}, idempotency_key="name")
        await engine.start(first, {"n": 1}, idempotency_key="plan")
        second = await engine.publish(flow(2))
        assert await engine.start("keyed", {"n": 1}, idempotency_key="name") == sk.Started(by_name.run_id, False)
        # What named none before, or names none now, asks for the same.
        for workflow in (second, flow(2), Newest(second)):
            again = await engine.start(workflow, {"n": 1}, idempotency_key="name")
            assert again == sk.Started(by_name.run_id, created=False)
        assert not (await engine.start("keyed", {"n": 1}, idempotency_key="plan")).created
        with pytest.raises(sk.KeyReused, match=r"another body \(version 1, now 2\)"):
            await engine.start(flow(2), {"n": 1}, idempotency_key="plan")


@pytest.mark.parametrize(
    ("given", "options", "differs"),
    [
        ({"n": 2}, {}, ["input"]),
        ({"n": 1}, {"business_key": "b", "labels": {"a": "b"}}, ["business key", "labels"]),
        ({"n": 1}, {"delay": "2h"}, ["delay of its start"]),
    ],
)
async def test_what_differs_is_named_with_the_run(
    database_url: str, given: Any, options: dict[str, Any], differs: list[str]
) -> None:
    async with on(database_url) as engine:
        await engine.publish(flow(1))
        first = await engine.start("keyed", {"n": 1}, idempotency_key="k")
        with pytest.raises(sk.KeyReused) as reused:
            await engine.start("keyed", given, idempotency_key="k", **options)
        assert reused.value.earlier == {"run_id": first.run_id, "differs": differs}
        assert all(word in str(reused.value) for word in (first.run_id, *differs))


async def test_the_fingerprint_of_a_key_from_before_is_still_recognised(database_url: str) -> None:
    async with on(database_url) as engine:
        plan = await engine.publish(flow(1))
        request = StartRequest(plan=plan, caller=Caller("t", "a"), input=b'{"n":1}', labels=b'{"a":"b"}', priority=3)
        parts = ("keyed", 1, plan.digest, {"n": 1}, None, None, 3, True, None, {"a": "b"})
        old = hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()
        key = IdempotencyKey(tenant="t", operation="start", key="k", fingerprint=old, run_id="r")
        assert request.differs_from(key) is None
        assert msgspec.structs.replace(request, input=b'{"n":2}').differs_from(key) == []
