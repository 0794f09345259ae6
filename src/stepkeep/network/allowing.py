"""The allow list: hosts, addresses and networks, each with a port or without, that may be reached beside public ones.

It parses entries and matches; it resolves nothing. Operators write it (`--http-allow`, `stepkeep network allow`), and
the guard reads it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

import msgspec

from stepkeep.edges.safe_text import inert_line, plain_text, type_name
from stepkeep.kernel.errors import InvalidInput
from stepkeep.network.addresses import Address, Network

NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*")
MAX_ENTRY = 300
_PORT = re.compile(r"[0-9]{1,5}")


class Entry(msgspec.Struct, frozen=True):
    """One entry. `name` or `network` is given; `port` None means every port."""

    name: str | None
    network: Network | None
    port: int | None

    def covers(self, host: str, address: Address, port: int) -> bool:
        if self.port is not None and self.port != port:
            return False
        if self.network is not None:
            return address in self.network
        return host.lower().rstrip(".") == self.name

    def __str__(self) -> str:
        if self.network is None:
            host = self.name or ""
        else:
            whole = self.network.prefixlen == self.network.max_prefixlen
            host = str(self.network.network_address) if whole else str(self.network)
            if self.network.version == 6 and self.port is not None:
                host = f"[{host}]"
        return host if self.port is None else f"{host}:{self.port}"


class AllowList(msgspec.Struct, frozen=True):
    """Entries that were parsed. A listed name may resolve to any address.

    >>> allowed = AllowList.of(["10.0.0.0/8", "search.internal:9200"])
    >>> allowed.covers("shop.example", ipaddress.ip_address("10.1.2.3"), 8080) is not None
    True
    >>> allowed.covers("search.internal", ipaddress.ip_address("192.168.0.9"), 22) is None
    True
    """

    entries: tuple[Entry, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> AllowList:
        """Parse entries; raises InvalidInput."""
        if isinstance(entries, str):
            raise InvalidInput(f"`allow` takes several hosts, as in ({entries!r},), and not a single text.")
        return cls(tuple(dict.fromkeys(parse_entry(entry) for entry in entries)))

    def covers(self, host: str, address: Address, port: int) -> Entry | None:
        """The first entry that allows this connection."""
        return next((entry for entry in self.entries if entry.covers(host, address, port)), None)

    def __add__(self, other: AllowList) -> AllowList:
        return AllowList((*self.entries, *other.entries)) if other.entries else self


def parse_entry(text: str) -> Entry:
    """One entry: localhost, 10.1.2.3, 10.0.0.0/8, fd00::/8, or one of them with a port (localhost:8080, [::1]:80).

    >>> str(parse_entry("[FD00::/8]:443")), str(parse_entry("Search.Internal.:9200"))
    ('[fd00::/8]:443', 'search.internal:9200')
    """
    written = plain_text(text)
    if written is None:
        raise InvalidInput(f"an entry of an allow list is a text, and not {type_name(text)}.")
    host, port = _split(written.strip())
    if host is not None and len(written) <= MAX_ENTRY:
        network = _network(host)
        if network is not None:
            return Entry(None, network, port)
        name = host.lower().rstrip(".")
        if NAME.fullmatch(name) and not ends_in_number(name):
            return Entry(name, None, port)
    raise InvalidInput(
        f"{inert_line(written, 80)!r} is no host that HTTP steps can be allowed to reach. Give a name, an address or a "
        "network, as in localhost, 10.1.2.3 or 10.0.0.0/8, and a port behind it if only one is meant: localhost:8080."
    )


def ends_in_number(name: str) -> bool:
    """Whether the last label of a name is a number: resolvers read such a name as an IPv4 address.

    >>> [ends_in_number(name) for name in ("127.1", "0x7f.0x1", "a.b.0x", "v1.example", "2130706433")]
    [True, True, True, False, True]
    """
    last = name.rstrip(".").rpartition(".")[2].lower()
    return last.isdigit() or (last.startswith("0x") and all(each in "0123456789abcdef" for each in last[2:]))


def _split(text: str) -> tuple[str | None, int | None]:
    """Host and port; the host is None where the port is wrong."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or ":" not in host:
            return None, None
        if not rest:
            return host, None
        port = rest.removeprefix(":") if rest.startswith(":") else ""
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        return text, None
    if not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
        return None, None
    return host, int(port)


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
