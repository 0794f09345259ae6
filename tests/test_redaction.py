"""No password of a URL is shown, in whichever part it stands."""

from __future__ import annotations

import pytest

from stepkeep.redaction import UNREADABLE, database_url, public_url


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
        "https://u:CANARY@h/p?api_key=CANARY#CANARY",
    ],
)
def test_no_password_is_shown(url: str) -> None:
    assert "CANARY" not in database_url(url)
    assert "CANARY" not in public_url(url)


def test_a_url_without_a_password_is_shown_as_it_is() -> None:
    for url in ("sqlite:///app.db", "postgresql://u@h/db", "sqlite:////tmp/a@b.db"):
        assert database_url(url) == url


def test_a_public_url_keeps_scheme_host_port_and_path() -> None:
    assert public_url("http://u:p@[::1]:8080/a/b?c#d") == "http://[::1]:8080/a/b"


def test_what_is_no_url_is_not_quoted() -> None:
    assert public_url("u:CANARY@h/db") == public_url("CANARY") == UNREADABLE
