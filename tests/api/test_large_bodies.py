"""Large bodies are checked in child processes, with the answers that small ones get."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.api.requests import read_large
from stepkeep.definition.text.json_text import strict_json
from stepkeep.engine.arguments import encode_payload
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations import in_child
from stepkeep.operations.aside import use_children
from stepkeep.operations.in_child import SMALL_BYTES
from stepkeep.operations.typed import LargePart
from tests.api.stage import on, told

SPACE = b" " * SMALL_BYTES
JSON = {"Content-Type": "application/json"}


def refusal(read: Any, given: Any) -> str:
    with pytest.raises(InvalidInput) as refused:
        read(given)
    return str(refused.value)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1, "b": {"c": 1, "c": 2}}',
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 41 + b"}",
        b"[" * 73 + b"]" * 73,
        b'{"a": "\xff"}',
        b'{"a": ',
    ],
)
def test_a_large_body_is_refused_in_the_words_for_a_small_one(body: bytes) -> None:
    assert refusal(read_large, SPACE + body) == refusal(strict_json, SPACE + body)


def test_what_is_small_in_a_large_body_comes_as_it_is() -> None:
    body = {"text": "é\u2028", "number": 1.5, "many": 2**70, "nothing": None, "is": True, "inner": {"a": [1, "x"]}}
    assert read_large(SPACE + json.dumps(body).encode()) == body


@pytest.mark.parametrize(
    "part", ["é" * SMALL_BYTES, [1.0, None, 2**70, -(2**65)] * 20_000, {str(at): at for at in range(20_000)}]
)
def test_a_large_part_is_the_payload_that_a_small_one_would_be(part: object) -> None:
    found = read_large(json.dumps({"input": part, "name": "a"}).encode())
    assert found == {"input": LargePart(encode_payload(part)), "name": "a"}
    assert encode_payload(found["input"]) == encode_payload(part)
    assert found["input"].decoded() == part


@pytest.mark.parametrize("part", ["\ud800" * SMALL_BYTES, ["\x00"] * SMALL_BYTES])
def test_a_large_part_that_cannot_be_stored_is_refused_as_a_small_one(part: Any) -> None:
    large = read_large(json.dumps({"input": part}).encode())["input"]
    assert refusal(encode_payload, large) == refusal(encode_payload, part[:1])
    assert large.decoded() == part


async def test_a_large_part_of_another_type_is_read_as_a_small_one(database_url: str) -> None:
    async with on(database_url) as stage, stage.client(await stage.key()) as client:
        many = {"labels": {f"a{at}": "x" for at in range(20_000)}, "workflow": "hello"}
        long = {"workflow": "x" * 2 * SMALL_BYTES, "labels": [1] * SMALL_BYTES}
        told(await client.post("/runs", json=many), 400, "invalid_input")
        refused = told(await client.post("/runs", json=long), 400, "invalid_input")["errors"]
        assert [one["at"] for one in refused] == ["body.workflow", "body.labels"]


def end_idle_children() -> int:
    for child in in_child._idle:
        child.process.kill()
        child.process.wait()
    return len(in_child._idle)


def environment() -> dict[str, str]:
    return dict(os.environ)


def dies() -> None:
    os.kill(os.getpid(), 9)


def test_a_child_that_was_killed_is_replaced_and_work_that_kills_two_is_refused() -> None:
    assert read_large(SPACE + b"{}") == {}
    while end_idle_children() > 1:
        in_child._idle.pop().end()
    assert read_large(SPACE + b"{}") == {}
    assert "has ended twice" in refusal(lambda _: in_child.in_child(dies), None)
    assert read_large(SPACE + b"{}") == {}


def test_a_child_has_none_of_our_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPKEEP_SECRET_A", "hidden")
    in_child._end_all()
    assert "STEPKEEP_SECRET_A" in os.environ
    assert "STEPKEEP_SECRET_A" not in in_child.in_child(environment)


async def test_a_large_value_is_checked_against_its_schema_in_a_child(database_url: str) -> None:
    declared = sk.Workflow("declared", input_schema={"properties": {"many": {"items": {"type": "integer"}}}})
    declared.step("greet", "api.greet")
    use_children()
    try:
        async with on(database_url) as stage, stage.client(await stage.key()) as client:
            await stage.publish(declared)
            for many, status in ([1] * SMALL_BYTES, 201), ([*[1] * SMALL_BYTES, "one"], 400):
                body = json.dumps({"workflow": "declared", "input": {"many": many}})
                answer = await client.post("/runs", content=body, headers=JSON)
                assert answer.status_code == status, answer.text
            assert "does not fit its schema" in answer.json()["detail"]
    finally:
        use_children(False)
