"""Addresses of requests: URLs in every odd spelling of an internal place, and names that lead to one.

Judges with the standard library's own tables that a request is let through only to addresses that are public.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from random import Random
from typing import Any

import msgspec

from stepkeep.network.failures import RequestFailed
from stepkeep.network.guard import Guard, Reach
from stepkeep.network.guard import Target as Checked
from stepkeep_lab.fuzz.chance import changed_text, hostile_text, shorter_text
from stepkeep_lab.fuzz.target import Limits, Target, Verdict, broken

INSIDE = ("127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "172.16.9.9", "100.64.0.1")  # noqa: S104
INSIDE_6 = ("::1", "::", "fe80::1", "fd00::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "ff02::1")
OUTSIDE = ("93.184.216.34", "1.1.1.1", "2606:4700::1111")
SCHEMES = ("http", "https", "HTTP", "ftp", "file", "gopher", "http:", "")


class Request(msgspec.Struct, frozen=True):
    """A URL, and the addresses that every name in it leads to."""

    url: str
    answers: tuple[str, ...]


Check = Callable[[Request], Coroutine[Any, Any, Checked]]


async def checked(case: Request) -> Checked:
    """What the guard says, with a resolver that reads numbers as the system's does."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        try:
            return [socket.inet_ntoa(socket.inet_aton(host))]
        except (OSError, UnicodeError, ValueError):
            return case.answers

    return await Guard(Reach(), resolve=resolve).check(case.url)


class Addresses(Target[Request]):
    name = "addresses"
    what = "URLs in odd spellings of internal addresses, with mutations, and names that lead inside."
    holds = "A request is refused in a typed way, or each of its addresses is public by the standard library's tables."
    limits = Limits(cpu_seconds=5.0, memory_mb=300, batch=1000)

    def __init__(self, check: Check = checked) -> None:
        self._checked = check

    def generate(self, random: Random) -> Request:
        host = random.choice((_spelled, _spelled_6, _name))(random)
        before = random.choice((*[""] * 12, "user@", "user:word@", "93.184.216.34@", "1.1.1.1:80@", "%2540", "a\\@"))
        port = random.choice(
            (*[""] * 12, ":80", ":443", ":22", ":0", ":99999", ":\uff18\uff10", f":{random.randrange(70000)}")
        )
        odd = ("", "/a?b#c", "\\@93.184.216.34/", "#@1.1.1.1/", "?@1.1.1.1/", "/\r\nHost: x")
        rest = random.choice((*["/"] * 12, *odd))
        scheme = random.choice((*["http"] * 6, *["https"] * 6, *SCHEMES))
        url = f"{scheme}{random.choice((*['://'] * 12, ':/', ':', '//'))}{before}{host}{port}{rest}"
        if random.random() < 0.2:
            url = changed_text(random, url, 3)
        if random.random() < 0.03:
            url = hostile_text(random)
        answers = random.sample((*INSIDE, *INSIDE_6, *OUTSIDE, *OUTSIDE, *OUTSIDE), random.choice((0, 1, 1, 1, 2, 3)))
        return Request(url, tuple(answers))

    def check(self, case: Request) -> Verdict:
        try:
            found = asyncio.run(self._checked(case))
        except RequestFailed as refused:
            return Verdict(outcome=type(refused).__name__)
        inside = [one for one in found.addresses if not _is_outside(one)]
        if inside:
            return broken("lets requests through to public addresses alone", f"{case.url!a} goes to {inside}")
        return Verdict(outcome="let through")

    def smaller(self, case: Request) -> Iterator[Request]:
        for url in shorter_text(case.url):
            yield Request(url, case.answers)


def _spelled(random: Random) -> str:
    """An IPv4 address as some program would read it."""
    packed = int(ipaddress.IPv4Address(random.choice((*INSIDE, "93.184.216.34"))))
    parts = [packed >> 24, packed >> 16 & 255, packed >> 8 & 255, packed & 255]
    write = random.choice((str, str, hex, lambda number: f"0{number:o}", lambda number: f"{number:03}"))
    match random.choice(("whole", "parts", "parts", "three", "two", "dot")):
        case "whole":
            return str(write(packed))
        case "three":
            return ".".join((*map(write, parts[:2]), str(packed & 0xFFFF)))
        case "two":
            return f"{write(parts[0])}.{packed & 0xFFFFFF}"
        case "dot":
            return f"{'.'.join(map(write, parts))}."
        case _:
            return ".".join(map(write, parts))


def _spelled_6(random: Random) -> str:
    address = ipaddress.IPv6Address(random.choice((*INSIDE_6, "2606:4700::1111")))
    written = random.choice((str(address), address.exploded, str(address).upper(), f"{address}%25lo", f"{address}%lo"))
    return random.choice((f"[{written}]", f"[{written}]", written))


def _name(random: Random) -> str:
    plain = ("localhost", "LOCALHOST.", "shop.example", "shop.example", "127.0.0.1.nip.example", "a..b")
    return random.choice((*plain, "\u24dbocalhost", "\uff11\uff12\uff17.0.0.1", "xn--a"))


def _is_outside(text: str) -> bool:
    """Whether an address is public, and every address that is written inside of it."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if not address.is_global or address.is_multicast:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in ipaddress.IPv6Network("64:ff9b::/96"):
            inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        return all(one is None or one.is_global for one in inner)
    return True
