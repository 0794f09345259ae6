"""Classifies IP addresses: public, or internal in any spelling and inside any IPv6 address that embeds one.

The networks are listed here, because `ipaddress` classifies them differently between releases of Python. It resolves
nothing. The guard and the allow list call it.
"""

from __future__ import annotations

import ipaddress

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
