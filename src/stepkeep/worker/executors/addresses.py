"""Checks the addresses that an HTTP step may reach: a name is resolved once, and all its addresses are checked.

A check of names alone would be useless: a name can point anywhere, and elsewhere a moment later. The connection
therefore uses a checked address. The networks are listed here, because `ipaddress` classifies them differently between
releases of Python. The HTTP executor calls it for every request.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from stepkeep.errors import InvalidInput

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

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*")


RESOLVERS = 32
"""Threads that wait for name servers. Not the event loop's default executor, which handlers may keep busy."""


class Forbidden(Exception):
    """An address that this worker's HTTP steps may not reach."""


class Unresolved(Exception):
    """A name without a known address."""


class Guard:
    """Checks addresses: public ones are allowed, and others if the operator lists them.

    `allow` holds addresses, networks (10.0.0.0/8) and names; a listed name may resolve to any address.
    """

    def __init__(self, *, allow_internal: bool, allow: Iterable[str]) -> None:
        self._allow_internal = allow_internal
        self._networks: list[Network] = []
        self._names: set[str] = set()
        self._resolvers: ThreadPoolExecutor | None = None
        if isinstance(allow, str):
            raise InvalidInput(f"`allow` takes several hosts, as in ({allow!r},), and not a single text.")
        for entry in allow:
            self._admit(entry)

    async def addresses(self, host: str, port: int) -> list[str]:
        """The addresses of `host` (ASCII), after all of them were checked; raises Forbidden or Unresolved."""
        addresses = [host] if _is_address(host) else await self._resolve(host, port)
        for address in addresses:
            if not self.permits(host, address):
                raise Forbidden(
                    f"{host} leads to {address}, which is not a public address. "
                    "An operator can allow it: stepkeep worker --http-allow."
                )
        return addresses

    def close(self) -> None:
        if self._resolvers is not None:
            self._resolvers.shutdown(wait=False)
            self._resolvers = None

    async def _resolve(self, host: str, port: int) -> list[str]:
        if self._resolvers is None:
            self._resolvers = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="stepkeep-names")
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._resolvers, look_up)
        except (socket.gaierror, UnicodeError):
            raise Unresolved(f"the name {host} cannot be resolved") from None
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if not addresses:
            raise Unresolved(f"the name {host} has no address")
        return addresses

    def permits(self, host: str, address: str) -> bool:
        """Whether a connection to this address may be made on behalf of this host."""
        if self._allow_internal or host.lower().rstrip(".") in self._names:
            return True
        meant = _meant(address)
        return meant is not None and (_is_public(meant) or any(meant in network for network in self._networks))

    def _admit(self, entry: str) -> None:
        text = entry.strip()
        try:
            self._networks.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            name = text.lower().rstrip(".")
            if not _NAME.fullmatch(name) or name.replace(".", "").isdigit():
                raise InvalidInput(
                    f"{entry!r} is no host that HTTP steps can be allowed to reach. "
                    "Give a name, an address or a network, as in localhost, 10.1.2.3 or 10.0.0.0/8."
                ) from None
            self._names.add(name)


def is_public(text: str) -> bool:
    """Whether an address belongs to the open internet, and nothing hidden inside it does not.

    >>> is_public("93.184.216.34"), is_public("::ffff:169.254.169.254"), is_public("100.64.0.1")
    (True, False, False)
    """
    meant = _meant(text)
    return meant is not None and _is_public(meant)


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _CLOSED_V4)
    return address in _OPEN_V6 and not any(address in network for network in _CLOSED_V6)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _meant(text: str) -> Address | None:
    """The address that a connection to this one reaches: some IPv6 addresses embed an IPv4 address."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and (address in _MAPPED or address in _NAT64):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
