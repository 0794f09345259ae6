"""Serves the web pages: `/` leads to `/ui`, every address below it is the same document, files are in `/ui/files`.

The files are those of `stepkeep/ui`; of modules the comments that have lines of their own are left out. They hold no
data: a page reads everything through the routes of the API, with a session, so that these routes are open. Files have
the digest of all files in their address and may be kept forever; the document is asked for again each time. `app` adds
the routes, which are not in the OpenAPI document.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stepkeep.api.problems import NOT_FOUND, problem

DOCUMENT: Final = "index.html"
TYPES: Final[Mapping[str, str]] = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # No text becomes markup or code: the browser refuses innerHTML and its kind.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""The content security policy of the pages: scripts and styles from files of this service only, nothing inline."""

FOREVER: Final = "public, max-age=31536000, immutable"
SMALLEST_PACKED = 1_000
COMMENTS: Final = re.compile(rb"^[\t ]*/\*\*(?:[^*]|\*(?!/))*\*/$", re.MULTILINE)
"""Comments that have lines of their own."""


class File:
    """One file: its bytes, its type, and the tag that tells whether it has changed."""

    def __init__(self, name: str, content: bytes) -> None:
        self.type = TYPES[name.rpartition(".")[2]]
        self.content = content
        self.packed = gzip.compress(content, mtime=0) if len(content) >= SMALLEST_PACKED else None
        self.tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'

    def answer(self, request: Request, kept: str) -> Response:
        """The file; 304 where the client has it; packed where the client can unpack it."""
        headers = {
            "ETag": self.tag,
            "Cache-Control": kept,
            "Vary": "Accept-Encoding",
            "Content-Security-Policy": POLICY,
            "Cross-Origin-Opener-Policy": "same-origin",
        }
        if self.tag in request.headers.get("if-none-match", "").replace("W/", "").replace(" ", "").split(","):
            return Response(status_code=304, headers=headers)
        content = self.content
        if self.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            content, headers["Content-Encoding"] = self.packed, "gzip"
        return Response(content, media_type=self.type, headers=headers)


class Site:
    """All files of the pages, read once."""

    def __init__(self, content: Mapping[str, bytes]) -> None:
        self.files = {name: File(name, read) for name, read in content.items()}
        together = hashlib.sha256()
        for name in sorted(content):
            together.update(name.encode() + b"\0" + content[name] + b"\0")
        self.digest = together.hexdigest()[:16]
        self._text = content[DOCUMENT].decode()
        self._documents: dict[str, File] = {}

    def document(self, root: str) -> File:
        """The document with the addresses of its files; `root` is where a host program mounted the service."""
        if root not in self._documents:
            self._documents = {root: self._document(root)}
        return self._documents[root]

    def _document(self, root: str) -> File:
        base = f"{root}/ui/files/{self.digest}"
        scripts = sorted(name for name in self.files if name.endswith(".js") and name != "theme.js")
        preloads = "\n".join(f'<link rel="modulepreload" href="{base}/{name}">' for name in scripts)
        return File(DOCUMENT, self._text.replace("FILES", base).replace("<!-- modules -->", preloads).encode())


@cache
def site() -> Site:
    """The files of the package."""
    return Site(dict(_files(files("stepkeep") / "ui", "")))


def _files(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for one in folder.iterdir():
        if one.is_dir():
            found += _files(one, f"{prefix}{one.name}/")
        elif one.name.rpartition(".")[2] in TYPES:
            content = one.read_bytes()
            found.append((prefix + one.name, _bare(content) if one.name.endswith(".js") else content))
    return found


def _bare(module: bytes) -> bytes:
    """A module without its comments for people and for the type check. Every line keeps its number."""
    return COMMENTS.sub(lambda found: b"\n" * found[0].count(b"\n"), module)


async def _home(request: Request) -> Response:
    return Response(status_code=307, headers={"Location": f"{_root(request)}/ui"})


async def _document(request: Request) -> Response:
    return site().document(_root(request)).answer(request, "no-cache")


async def _file(request: Request) -> Response:
    found = site().files.get(request.path_params["path"])
    if found is None:
        return problem(NOT_FOUND, "")
    # A page that was opened before an upgrade asks under the old digest.
    is_current = request.path_params["digest"] == site().digest
    return found.answer(request, FOREVER if is_current else "no-cache")


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


routes = [
    Route("/", _home, methods=["GET"], include_in_schema=False),
    Route("/ui/files/{digest}/{path:path}", _file, methods=["GET"], include_in_schema=False),
    Route("/ui", _document, methods=["GET"], include_in_schema=False),
    Route("/ui/{path:path}", _document, methods=["GET"], include_in_schema=False),
]
