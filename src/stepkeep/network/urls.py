"""Reads the URL of a request strictly: http or https, one clear host, a port that exists, no user and no password.

What two programs could read differently is refused: control characters, backslashes, percent signs in the host, and
addresses in unusual spellings. It resolves nothing. The guard calls it; HTTP steps take credentials off before.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from stepkeep.network.allowing import NAME, ends_in_number, is_address
from stepkeep.network.failures import CannotSend

if TYPE_CHECKING:
    from httpx2 import URL

MAX_URL = 8 * 1024
MAX_NAME = 253
PORTS = {"http": 80, "https": 443}

_UNCLEAR = re.compile(r"[\x00-\x20\x7f-\x9f\\]")


class RequestTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request goes, and what it asks for there. `host` is ASCII, without brackets."""

    scheme: str
    host: str
    port: int
    authority: str
    """Host and port as the `Host` header has them."""
    target: str
    """Path and query."""


def parse(text: str) -> RequestTarget:
    """The parts of a URL; raises CannotSend, which quotes none of it."""
    url = read(text)
    if url.userinfo:
        raise CannotSend("its URL has a user or a password in it; send them in a header")
    return place_of(url)


def read(text: str) -> URL:
    """The URL as the HTTP library has it; raises CannotSend."""
    import httpx2

    if len(text) > MAX_URL:
        raise CannotSend(f"its URL is longer than {MAX_URL} characters")
    if _UNCLEAR.search(text):
        raise CannotSend("its URL is malformed: it has a space, a backslash or a control character in it")
    try:
        return httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError):
        raise CannotSend("its URL is malformed") from None


def place_of(url: URL) -> RequestTarget:
    """Where a URL leads; raises CannotSend for all but one clear host of HTTP."""
    if url.scheme not in PORTS or not url.raw_host:
        raise CannotSend("it needs a URL that starts with http:// or https://")
    port = PORTS[url.scheme] if url.port is None else url.port
    if not 0 < port < 65536:
        raise CannotSend(f"there is no port {port}")
    host = url.raw_host.decode("ascii")
    _check_host(host)
    return RequestTarget(
        scheme=url.scheme,
        host=host,
        port=port,
        authority=url.netloc.decode("ascii"),
        target=url.raw_path.decode("ascii"),
    )


def _check_host(host: str) -> None:
    if is_address(host) and "%" not in host:
        return
    name = host.removesuffix(".")
    if ends_in_number(host):
        raise CannotSend("its host is an address in an unusual spelling; write four decimal numbers")
    if len(name) > MAX_NAME or not NAME.fullmatch(name) or any(len(label) > 63 for label in name.split(".")):
        raise CannotSend("its URL is malformed: its host is no name and no address")
