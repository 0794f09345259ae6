"""No password of a URL is shown, in whichever part it stands."""

from __future__ import annotations

import pytest

from stepkeep.edges.redaction import UNREADABLE, database_url, database_url_fault, public_url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:CANARY@h/db",
        "postgresql://u@h/db?password=CANARY",
        "postgresql://u@h/db?PassWord=CANARY&sslpassword=CANARY",
        "postgresql://u:CANARY#x@h/db",
        "postgresql://u:CAN/CANARY@h/db",
        "postgresql://u:CANARY?x@h/db",
        "postgresql://u:CANARY@[::1/db",
        "postgresql://u:CANARY@h:port/db",
        "postgresql://u:1CANARY@h:99999/db",
        "postgresql://u:12?CANARY@h/db",
        "postgresql://u:12?a=CANARY@h/db",
        "postgresql://u:x@y?a=CANARY@h/db",
        "postgresql://u:x#CANARY@h/db",
        "postgresql://u:CANARY x@h/db",
        "postgresql:u:CANARY@h/db",
        "u:CANARY@h/db",
        "https://u:CANARY@h/p?api_key=CANARY#CANARY",
    ],
)
def test_no_password_is_shown(url: str) -> None:
    assert "CANARY" not in database_url(url)
    assert "CANARY" not in public_url(url)


@pytest.mark.parametrize("url", ["postgresql://u:12/CANARY@h/db", "postgresql://u:x@y/CANARY@h/db"])
def test_a_password_with_a_slash_in_it_makes_a_database_url_malformed(url: str) -> None:
    assert database_url(url) == UNREADABLE


def test_a_url_without_a_password_is_shown_as_it_is() -> None:
    for url in ("sqlite:///app.db", "postgresql://u@h/db", "sqlite:////tmp/a@b#c.db"):
        assert database_url(url) == url


def test_a_public_url_keeps_scheme_host_port_and_path() -> None:
    assert public_url("http://u:p@[::1]:8080/a/b?c#d") == "http://[::1]:8080/a/b"


def test_what_is_no_url_is_not_quoted() -> None:
    assert public_url("u:CANARY@h/db") == public_url("CANARY") == UNREADABLE


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:pw@h/db",
        "postgresql://u:p%23%2F%3F%40w@h:5432/db?sslmode=require",
        "postgresql://u@[::1]:5432/db",
        "postgresql://u@h1:1,h2:65535/db",
        "postgresql://u@/db?host=/run/postgresql&port=5433&options=-c%20x%3D1",
        "postgresql:///db",
    ],
)
def test_a_url_that_a_server_understands_has_no_fault(url: str) -> None:
    assert database_url_fault(url) is None
    assert database_url(url) != UNREADABLE
