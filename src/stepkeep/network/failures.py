"""Every failure of a request to the outside, drawn as a tree.

    RequestFailed
    ├── CannotSend        the URL, a header or the method is wrong: sending it again changes nothing
    ├── Forbidden         the address or the port is not allowed: an operator may allow it
    ├── Unresolved        the name has no known address
    ├── NoConnection      no address accepted a connection, or TLS refused the server
    ├── ConnectionBroke   connected, then the connection or the protocol broke: the request may have been served
    ├── TooSlow           no complete answer within the limit of time: the request may have been served
    └── BadAnswer         an answer came, and its body cannot be unpacked

The texts are our own: none quotes a header value, a query, a password, or the words of the HTTP library.
"""

from __future__ import annotations


class RequestFailed(Exception):
    """A request that has no answer. `may_have_been_served` says whether the receiver may have acted on it."""

    may_have_been_served = False


class CannotSend(RequestFailed):
    """The request itself is wrong."""


class AddressForbidden(RequestFailed):
    """The guard refuses the address or the port."""


class Unresolved(RequestFailed):
    """The name has no known address."""


class NoConnection(RequestFailed):
    """No connection was made; nothing was sent."""


class ConnectionBroke(RequestFailed):
    """The exchange ended before the answer was complete."""

    may_have_been_served = True


class TooSlow(RequestFailed):
    """The answer was not complete in time."""

    may_have_been_served = True


class BadAnswer(RequestFailed):
    """The body of the answer cannot be unpacked."""

    may_have_been_served = True
