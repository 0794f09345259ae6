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

NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*")
MAX_ENTRY = 300
_PORT = re.compile(r"[0-9]{1,5}")


class AllowedEntry(msgspec.Struct, frozen=True):
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

    entries: tuple[AllowedEntry, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> AllowList:
        """Parse entries; raises InvalidInput."""
        if isinstance(entries, str):
            raise InvalidInput(f"`allow` takes several hosts, as in ({entries!r},), and not a single text.")
        return cls(tuple(dict.fromkeys(parse_entry(entry) for entry in entries)))

    def covers(self, host: str, address: Address, port: int) -> AllowedEntry | None:
        """The first entry that allows this connection."""
        return next((entry for entry in self.entries if entry.covers(host, address, port)), None)

    def __add__(self, other: AllowList) -> AllowList:
        return AllowList((*self.entries, *other.entries)) if other.entries else self


def parse_entry(text: str) -> AllowedEntry:
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
            return AllowedEntry(None, network, port)
        name = host.lower().rstrip(".")
        if NAME.fullmatch(name) and not ends_in_number(name):
            return AllowedEntry(name, None, port)
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


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Everything in IPv4 is public except these (IANA's registry of special-purpose addresses, and one cloud's own).
_CLOSED_V4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host: connects to the loopback
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by a carrier; the metadata service of one cloud
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # the platform service of one cloud, on a public address
        "169.254.0.0/16",  # link-local; the metadata services of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; the metadata service of one cloud
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
# In IPv6 only global unicast is public, except these.
_OPEN_V6 = ipaddress.IPv6Network("2000::/3")
_CLOSED_V6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which wraps any IPv4 address
        "3fff::/20",  # documentation
    )
)
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(text: str) -> bool:
    """Whether an address belongs to the open internet, and so does an address that it embeds.

    >>> is_public("93.184.216.34"), is_public("::ffff:169.254.169.254"), is_public("100.64.0.1")
    (True, False, False)
    """
    meant = meant_by(text)
    return meant is not None and is_public_address(meant)


def is_public_address(address: Address) -> bool:
    """The same for an address that `meant_by` returned."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _CLOSED_V4)
    return address in _OPEN_V6 and not any(address in network for network in _CLOSED_V6)


def is_address(host: str) -> bool:
    """Whether a host is written as an address: four decimal numbers, or IPv6."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def meant_by(text: str) -> Address | None:
    """The address that a connection to this one reaches: some IPv6 addresses embed an IPv4 address."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and (address in _MAPPED or address in _NAT64):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
