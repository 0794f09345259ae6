"""The allow list of a tenant: on record, for the operator alone, and read before every HTTP step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import stepkeep as sk
from tests.network.raw_server import Listener, answering

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


@pytest.fixture
def canary() -> Iterator[Listener]:
    with Listener(answering(OK)) as listening:
        yield listening


def calling(canary: Listener) -> sk.Workflow:
    workflow = sk.Workflow("calling")
    workflow.http("call", f"http://127.0.0.1:{canary.port}/")
    return workflow


def test_an_http_step_reaches_an_internal_host_only_while_its_tenant_allows_it(
    database_url: str, canary: Listener
) -> None:
    host = f"127.0.0.1:{canary.port}"
    with sk.open(database_url) as engine:
        refused = engine.run(calling(canary))
        assert (refused.state, canary.received) == (sk.RunState.FAILED, b"")
        assert "stepkeep network allow" in str(refused.error)
        assert engine.network.allow(host, by="ann") == {"allow": [host]}
        assert engine.run(calling(canary)).state is sk.RunState.SUCCEEDED
        engine.network.remove(host, by="bob")
        assert engine.run(calling(canary)).state is sk.RunState.FAILED
        found = engine.network.list(history=True)
    assert canary.connections == 1
    assert found["allow"] == []
    assert [(one["revision"], one["by"], one["content"]) for one in found["history"]] == [
        (2, "bob", []),
        (1, "ann", [host]),
    ]


def test_one_tenants_list_opens_nothing_for_another(database_url: str, canary: Listener) -> None:
    with sk.open(database_url, tenant="acme") as acme, sk.open(database_url, tenant="other") as other:
        acme.network.allow("127.0.0.1")
        assert other.network.list() == {"allow": []}
        assert other.run(calling(canary)).state is sk.RunState.FAILED
        assert canary.received == b""
        assert acme.run(calling(canary)).state is sk.RunState.SUCCEEDED


def test_a_key_of_the_tenant_cannot_open_the_network_of_the_operator(database_url: str) -> None:
    with sk.open(database_url) as engine:
        engine.users.create("ann")
        key = engine.keys.create("ann", scopes=["admin", "read"]).secret
    with sk.open(database_url, key=key) as ann:
        for change in (ann.network.allow, ann.network.remove):
            with pytest.raises(sk.NotAllowed, match="by the operator") as caught:
                change("10.0.0.0/8")
            assert caught.value.rule == "operator_only"
        assert ann.network.list() == {"allow": []}


def test_the_same_entry_is_saved_once_whatever_its_spelling(database_url: str) -> None:
    with sk.open(database_url) as engine:
        for spelled in ("Search.Internal.", "search.internal", "10.9.9.9/8", "10.0.0.0/8"):
            found = engine.network.allow(spelled)
        assert found == {"allow": ["10.0.0.0/8", "search.internal"]}
        assert len(engine.network.list(history=True)["history"]) == 2


def test_what_is_unclear_or_unknown_is_refused_and_changes_nothing(database_url: str) -> None:
    with sk.open(database_url) as engine:
        for wrong in ("", "http://x", "0x7f.1", "a b"):
            with pytest.raises(sk.InvalidInput, match="is no host"):
                engine.network.allow(wrong)
        with pytest.raises(sk.InvalidInput, match="host: Input should be a valid string"):
            engine.network.allow(7)  # type: ignore[arg-type]
        with pytest.raises(sk.NotFound, match="not in the allow list"):
            engine.network.remove("search.internal")
        assert engine.network.list(history=True) == {"allow": [], "history": []}
