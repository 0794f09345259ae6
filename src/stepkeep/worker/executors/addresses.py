"""Which addresses an HTTP step may reach: a name is resolved once, every address it has is judged, one is used.

Deciding on names would be useless (they can point anywhere, and somewhere else a moment later), so the connection goes
to the very address that was judged. Called by the HTTP executor where the worker does not allow internal targets.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class Forbidden(Exception):
    """An address that this worker's HTTP steps may not reach."""


async def vetted(host: str, port: int) -> str:
    """One address of `host`, after all of them were found to be public; raises Forbidden."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        if not is_public(address):
            raise Forbidden(f"{host} leads to {address}, which is not a public address")
    if not addresses:
        raise Forbidden(f"{host} has no address")
    return addresses[0]


def is_public(text: str) -> bool:
    """Whether an address belongs to the open internet, and nothing hidden inside it does not.

    >>> is_public("93.184.216.34"), is_public("::ffff:169.254.169.254"), is_public("100.64.0.1")
    (True, False, False)
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return all(inner.is_global and not inner.is_multicast for inner in _with_embedded(address))


def _with_embedded(address: Address) -> list[Address]:
    """The address and the IPv4 addresses that gateways would make of it."""
    found: list[Address] = []
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return [address.ipv4_mapped]
        if address.sixtofour is not None:
            found.append(address.sixtofour)
        if address.teredo is not None:
            found.extend(address.teredo)
        if address in _NAT64:
            found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [address, *found]
