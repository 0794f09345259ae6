"""Removes secrets from what is shown or stored: URLs, headers, environment variables, error texts.

A journal can never be cleaned, so a secret must not reach an error text at all. Every edge that names a URL, a header
or a variable asks here what may be said of it. Nothing here raises, and nothing that cannot be parsed is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

HIDDEN: Final = "***"
UNREADABLE: Final = "(a malformed URL)"

_SECRET_PARAMETERS: Final = ("password", "passwd", "passfile", "secret", "token", "key", "sslpassword", "sslkey")
_SECRET_NAMES: Final = (*_SECRET_PARAMETERS, "auth", "cookie", "credential", "passphrase", "pwd")
_SECRET_FIELD: Final = re.compile(
    "pass(?:word|wd|file|phrase)|pwd|secret|token|cookie|credential|authoriz|authent|(?:^|[^a-z])auth(?:$|[^a-z])"
    "|(?:api|access|account|auth|client|encryption|license|master|private|session|shared|signing|ssh|ssl|webhook)"
    "[_ -]?keys?(?:$|[^a-z])",
    re.IGNORECASE,
)
"""A name in JSON of people under which a secret is likely. Headers and variables are judged more strictly."""
_REFERENCE: Final = re.compile(r"^[A-Za-z]{0,10} ?\$\{\{ secret\.[A-Za-z0-9_]+ \}\}$")
"""A reference to a secret, perhaps behind a word such as Bearer: it hides nothing."""
_SHORTEST_SECRET: Final = 6
"""Shorter values are left in texts: hiding every `1` or `true` would make an error unreadable and protect nothing."""


def public_url(url: str) -> str:
    """Scheme, host, port and path of a URL: no credentials, no query, no fragment.

    A path with an `@` in it is hidden, because it may be the rest of a password with a `/`.

    >>> public_url("https://user:pw@example.com:8443/orders?api_key=1#x")
    'https://example.com:8443/orders'
    >>> public_url("https://user:12/34@example.com/orders")
    'https://user:12/***'
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
    path = f"/{HIDDEN}" if "@" in parts.path else parts.path
    return urlunsplit((parts.scheme, shown_host if port is None else f"{shown_host}:{port}", path, "", ""))


def database_url(url: str) -> str:
    """A database URL that may be shown: passwords, in whichever part, are replaced. A malformed one is not quoted.

    >>> database_url("postgresql://app:s3cret@db/orders?sslpassword=x&pool_size=4")
    'postgresql://app:***@db/orders?sslpassword=***&pool_size=4'
    """
    if url.startswith("sqlite:"):
        return url  # a file's name, which may hold any character and no password
    if database_url_fault(url) is not None:
        return UNREADABLE
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    credentials, at, place = parts.netloc.rpartition("@")
    user, colon, _ = credentials.partition(":")
    shown = [(name, HIDDEN if _is_secret(name) else value) for name, value in query]
    netloc = f"{user}{colon}{HIDDEN if colon else ''}{at}{place}"
    if not query and not colon:
        return url
    return urlunsplit(parts._replace(netloc=netloc, query=urlencode(shown, safe="*/")))


def database_url_fault(url: str) -> str | None:
    """What is malformed about the URL of a database server, without quoting any of it; None where nothing is.

    A password with `#`, `/`, `?` or `@` in it moves the borders between the parts of a URL. Such a URL is refused as a
    whole, because no part of it is known to be public.

    >>> database_url_fault("postgresql://app:s3#cret@db/orders")
    'it has a # in it'
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a bracket in it is not closed, or stands around something that is no IPv6 address"
    return next((said for said, is_so in FAULTS.items() if is_so(url, parts)), None)


def _has_strange_parameter(_: str, parts: SplitResult) -> bool:
    return any(not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name) for name, _ in _parameters(parts.query))


def _has_strange_place(_: str, parts: SplitResult) -> bool:
    return any(not _is_place(place) for place in parts.netloc.rpartition("@")[2].split(","))


def _has_strange_port(_: str, parts: SplitResult) -> bool:
    in_credentials = "/" in parts.netloc.rpartition("@")[0]
    return in_credentials or any(not _is_port(port) for port in _ports(parts.query))


BEGINNING = re.compile("[A-Za-z][A-Za-z0-9+.-]{0,31}://")
FAULTS: Mapping[str, Callable[[str, SplitResult], bool]] = {
    "it has spaces or characters that cannot be shown": lambda url, _: not url.isprintable() or " " in url,
    "it does not begin with a scheme and ://": lambda url, _: not BEGINNING.match(url),
    "it has a # in it": lambda url, _: "#" in url,
    "it has an @ behind the name of the host": lambda _, parts: "@" in parts.path or "@" in parts.query,
    "the name of a parameter in it has characters that no parameter has": _has_strange_parameter,
    "its host or port is not one: a port is a number from 1 to 65535": _has_strange_place,
    "its port is not a number from 1 to 65535": _has_strange_port,
}
"""What may be wrong with the URL of a database server, in the order in which it is asked."""


def secrets_of(named: Mapping[str, str]) -> tuple[str, ...]:
    """The secret values among headers or environment variables, judged by their names.

    >>> secrets_of({"Authorization": "Bearer abcdef", "Accept": "text/plain"})
    ('Bearer abcdef', 'abcdef')
    """
    found = [value for name, value in named.items() if _holds_secret(name)]
    return _worth_hiding([*found, *(value.rpartition(" ")[2] for value in found)])


def secrets_of_url(url: str) -> tuple[str, ...]:
    """The password of a URL and the secret values in its query, as written and as meant.

    >>> secrets_of_url("https://user:pass%20word@example.com/?api_key=abcdef&page=two")
    ('pass%20word', 'pass word', 'abcdef')
    """
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return ()
    password = parts.netloc.rpartition("@")[0].partition(":")[2]
    return _worth_hiding([password, unquote(password), *(value for name, value in query if _holds_secret(name))])


def secrets_of_arguments(argv: Sequence[str]) -> tuple[str, ...]:
    """The secret values in the arguments of a program: `--token=VALUE` and `--token VALUE`.

    >>> secrets_of_arguments(["deploy", "--token=abcdef", "--password", "ghijkl", "--dry-run"])
    ('abcdef', 'ghijkl')
    """
    found = []
    for place, argument in enumerate(argv):
        option, equals, value = argument.partition("=")
        if option.startswith("-") and _holds_secret(option):
            found.append(value if equals else "".join(argv[place + 1 : place + 2]))
    return _worth_hiding(found)


def hide_secrets(value: object) -> object:
    """A JSON value in which every text under a secret name is hidden, at any depth.

    A plain `key` is none: it names a row, a file or a request. Neither is `author`.

    >>> hide_secrets({"user": "ada", "key": "o-7", "login": {"api_key": "abcdef"}})
    {'user': 'ada', 'key': 'o-7', 'login': {'api_key': '***'}}
    """
    if isinstance(value, Mapping):
        return {
            name: HIDDEN
            if isinstance(name, str)
            and _SECRET_FIELD.search(name)
            and isinstance(item, str)
            and not _REFERENCE.search(item)
            else hide_secrets(item)
            for name, item in value.items()
        }
    return [hide_secrets(item) for item in value] if isinstance(value, list | tuple) else value


def without(text: str, secrets: Iterable[str]) -> str:
    """The text with every one of these secrets hidden; the longest first, because one may be part of another.

    >>> without("bad token abcdef", ["abcdef"])
    'bad token ***'
    """
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def _parameters(query: str) -> list[tuple[str, str]]:
    """Names and values as they are written, still quoted."""
    return [(name, value) for name, _, value in (part.partition("=") for part in query.split("&") if part)]


def _ports(query: str) -> list[str]:
    return [port for name, value in _parameters(query) if name == "port" for port in unquote(value).split(",")]


def _is_place(place: str) -> bool:
    """Whether this is a host, perhaps none, with an optional port."""
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9]+)?\]|[^\[\]:]*)(?::(.*))?", place)
    return found is not None and (not found[2] or _is_port(found[2]))


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65536


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_PARAMETERS)


def _holds_secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_NAMES)


def _worth_hiding(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in values if len(value) >= _SHORTEST_SECRET))
