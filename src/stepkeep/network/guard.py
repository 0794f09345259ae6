"""Decides where a request may connect to: resolves a name once, checks every address, and returns the checked ones.

A check of names alone would be useless: a name can point anywhere, and elsewhere a moment later. The client connects
to an address from here and resolves nothing itself. It sends nothing. The client calls it for every request.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from stepkeep.network.allowing import AllowList, is_address, is_public_address, meant_by
from stepkeep.network.failures import AddressForbidden, Unresolved
from stepkeep.network.urls import RequestTarget, parse

PUBLIC_PORTS = (80, 443)
"""The ports of public addresses that may be reached unless others are listed."""

RESOLVERS = 32
"""Threads that wait for name servers. Not the event loop's default executor, which handlers may keep busy."""

MOST_ADDRESSES = 16
"""A name with more addresses is refused: connecting to one after the other would hold an attempt for minutes."""

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Gives the addresses of a name; raises Unresolved."""


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """What may be reached. By default: public addresses on the ports 80 and 443.

    `allow` opens more. `ports`, if given, are the only ports, except for entries that name a port themselves; without
    it, an entry of `allow` without a port opens every port of its hosts. `allow_internal` opens every address and,
    without `ports`, every port. `hint` ends each refusal: how an operator allows it.
    """

    allow: AllowList = AllowList()
    allow_internal: bool = False
    ports: tuple[int, ...] | None = None
    hint: str = ""

    def refusal(self, host: str, address: str, port: int) -> str | None:
        """Why a connection to this address may not be made on behalf of this host; None if it may."""
        meant = meant_by(address)
        if meant is None:
            return self._said(f"{host} leads to something that is not an address")
        entry = self.allow.covers(host, meant, port)
        if entry is not None and entry.port is not None:
            return None
        public = is_public_address(meant)
        if entry is None and not self.allow_internal and not public:
            return self._said(f"{host} leads to {address}, which is not a public address")
        ports = self.ports
        if ports is None and public and entry is None and not self.allow_internal:
            ports = PUBLIC_PORTS
        if ports is not None and port not in ports:
            return self._said(f"port {port} of {host} is not among those that may be reached")
        return None

    def _said(self, words: str) -> str:
        return f"{words}. {self.hint}" if self.hint else words


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A place whose addresses were all checked."""

    place: RequestTarget
    addresses: tuple[str, ...]


class Guard:
    """Resolves and checks. `resolve` replaces the system's resolver."""

    def __init__(self, reach: Reach, *, resolve: Resolver | None = None) -> None:
        self.reach = reach
        self._resolve = resolve or self._ask_system
        self._resolvers: ThreadPoolExecutor | None = None

    async def check(self, url: str, *, also: AllowList | None = None) -> Target:
        """The addresses that may be connected to; raises CannotSend, Forbidden or Unresolved.

        `also` opens more than `reach` for this one request: the allow list of a tenant.
        """
        place = parse(url)
        reach = msgspec.structs.replace(self.reach, allow=self.reach.allow + also) if also else self.reach
        if is_address(place.host):
            addresses: Sequence[str] = (place.host,)
        else:
            addresses = tuple(dict.fromkeys(await self._resolve(place.host, place.port)))
        if not addresses:
            raise Unresolved(f"the name {place.host} has no address")
        if len(addresses) > MOST_ADDRESSES:
            raise AddressForbidden(f"the name {place.host} has more than {MOST_ADDRESSES} addresses")
        for address in addresses:
            refusal = reach.refusal(place.host, address, place.port)
            if refusal is not None:
                raise AddressForbidden(refusal)
        return Target(place=place, addresses=tuple(addresses))

    def close(self) -> None:
        if self._resolvers is not None:
            self._resolvers.shutdown(wait=False)
            self._resolvers = None

    async def _ask_system(self, host: str, port: int) -> Sequence[str]:
        if self._resolvers is None:
            self._resolvers = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="stepkeep-names")
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._resolvers, look_up)
        except (socket.gaierror, UnicodeError):
            raise Unresolved(f"the name {host} cannot be resolved") from None
        return [str(entry[4][0]) for entry in found]
