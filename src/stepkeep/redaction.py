"""Removes secrets from what is shown or stored: URLs, headers, environment variables, error texts.

A journal can never be cleaned, so a secret must not reach an error text at all. Every edge that names a URL, a header
or a variable asks here what may be said of it. Nothing here raises, and nothing that cannot be parsed is quoted.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

HIDDEN: Final = "***"
UNREADABLE: Final = "(a malformed URL)"

_SECRET_PARAMETERS: Final = ("password", "passwd", "passfile", "secret", "token", "key", "sslpassword", "sslkey")


def public_url(url: str) -> str:
    """Scheme, host, port and path of a URL: no credentials, no query, no fragment.

    >>> public_url("https://user:pw@example.com:8443/orders?api_key=1#x")
    'https://example.com:8443/orders'
    >>> public_url("http://user:pw@[::1/")
    '(a malformed URL)'
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return UNREADABLE
    if not parts.scheme or host is None:
        return UNREADABLE
    shown_host = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, shown_host if port is None else f"{shown_host}:{port}", parts.path, "", ""))


def database_url(url: str) -> str:
    """A database URL that may be shown: passwords, in whichever part, are replaced. A malformed one is not quoted.

    >>> database_url("postgresql://app:s3cret@db/orders?sslpassword=x&pool_size=4")
    'postgresql://app:***@db/orders?sslpassword=***&pool_size=4'
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises where the port is no number, as in user:pass#word@host
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return UNREADABLE
    if parts.fragment or ("@" in parts.path and parts.scheme != "sqlite"):
        return UNREADABLE  # a password with # or / in it has been taken apart
    credentials, at, place = parts.netloc.rpartition("@")
    user, colon, _ = credentials.partition(":")
    shown = [(name, HIDDEN if _is_secret(name) else value) for name, value in query]
    netloc = f"{user}{colon}{HIDDEN if colon else ''}{at}{place}"
    if not query and not colon:
        return url
    return urlunsplit(parts._replace(netloc=netloc, query=urlencode(shown, safe="*/")))


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_PARAMETERS)
