"""The web pages as files: what is served, with which headers, and that the document names each file."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import httpx2

from stepkeep.api.pages import POLICY, TYPES, site
from stepkeep.api.session import LINK_SECONDS, Links
from tests.api.stage import on, told
from tests.databases import migrated_file

UI = Path(__file__).parents[2] / "src" / "stepkeep" / "ui"
MOST_PACKED_BYTES = 100_000


async def test_the_address_leads_to_the_pages_and_every_page_is_the_same_document(tmp_path: Path) -> None:
    async with on(migrated_file(tmp_path / "pages.db")) as stage:
        async with stage.client() as client:
            home = await client.get("/")
            assert (home.status_code, home.headers["location"]) == (307, "/ui")
            pages = [await client.get(path) for path in ("/ui", "/ui/runs", "/ui/runs/1?step=a", "/ui/workflows/a.b/c")]
        assert {page.status_code for page in pages} == {200}
        assert len({page.text for page in pages}) == 1
        for page in pages:
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            assert page.headers["content-security-policy"] == POLICY
            assert page.headers["x-content-type-options"] == "nosniff"
            assert page.headers["x-frame-options"] == "DENY"
            assert page.headers["cache-control"] == "no-cache"


def test_the_policy_allows_no_inline_code_and_no_other_origin() -> None:
    rules = dict(rule.partition(" ")[::2] for rule in POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["form-action"] == rules["base-uri"] == "'none'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


async def test_the_document_names_every_file_and_each_is_kept_forever_under_its_digest(tmp_path: Path) -> None:
    async with on(migrated_file(tmp_path / "pages.db")) as stage, stage.client() as client:
        document = (await client.get("/ui")).text
        named = re.findall(r'(?:src|href)="([^"]+)"', document)
        assert {one.partition(f"/{site().digest}/")[2] for one in named} == set(site().files) - {"index.html"}
        for address in named:
            answer = await client.get(address)
            assert answer.status_code == 200
            assert "immutable" in answer.headers["cache-control"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            again = await client.get(address, headers={"If-None-Match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        old = await client.get(f"/ui/files/{'0' * 16}/app.js")
        assert (old.status_code, old.headers["cache-control"]) == (200, "no-cache")
        for missing in ("nothing.js", "..%2fapi%2fpages.py", "/etc/hostname", "index.html.py"):
            told(await client.get(f"/ui/files/{site().digest}/{missing}"), 404, "not_found")
        told(await client.post("/ui"), 405, "method_not_allowed")


async def test_files_are_packed_only_for_clients_that_unpack_them(tmp_path: Path) -> None:
    async with on(migrated_file(tmp_path / "pages.db")) as stage:
        async with stage.client() as client:
            address = f"/ui/files/{site().digest}/app.js"
            packed = await client.get(address, headers={"Accept-Encoding": "gzip"})
            plain = await client.get(address, headers={"Accept-Encoding": "identity"})
        assert packed.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        assert packed.content == plain.content == site().files["app.js"].content
        assert packed.headers["vary"] == "Accept-Encoding"


async def test_large_json_answers_are_packed_for_clients_that_unpack_them(tmp_path: Path) -> None:
    async with on(migrated_file(tmp_path / "pages.db")) as stage:
        async with stage.client() as client:
            asked = {"Accept-Encoding": "gzip"}
            packed = await client.get("/openapi.json", headers=asked)
            plain = await client.get("/openapi.json", headers={"Accept-Encoding": "identity"})
            small = await client.get("/healthz", headers=asked)
        assert packed.headers["content-encoding"] == "gzip"
        assert "accept-encoding" in packed.headers["vary"]
        assert int(packed.headers["content-length"]) * 4 < len(plain.content)
        assert packed.json() == plain.json()
        assert "content-encoding" not in plain.headers
        assert "content-encoding" not in small.headers


def test_all_files_are_served_and_small_and_hold_no_markup_sink() -> None:
    files = [path for path in UI.rglob("*") if path.is_file()]
    assert {path.relative_to(UI).as_posix() for path in files} == set(site().files)
    assert {path.suffix.removeprefix(".") for path in files} <= set(TYPES)
    total = len(gzip.compress(b"".join(served.content for _, served in sorted(site().files.items()))))
    assert total < MOST_PACKED_BYTES, f"the pages have {total:,} bytes, packed as one"
    sinks = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc")
    for path in files:
        if path.suffix in (".js", ".html"):
            assert not sinks.search(path.read_text(encoding="utf-8")), path
            assert "://" not in path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", ""), path


def test_a_module_is_served_without_comments_and_its_lines_keep_their_numbers() -> None:
    written, served = (UI / "dom.js").read_text(encoding="utf-8"), site().files["dom.js"].content.decode()
    assert "@param" in written
    assert "@param" not in served
    places = {line: number for number, line in enumerate(written.splitlines()) if line.startswith("export ")}
    assert places == {line: number for number, line in enumerate(served.splitlines()) if line.startswith("export ")}


async def test_a_mounted_service_names_its_files_below_its_mount(tmp_path: Path) -> None:
    async with on(migrated_file(tmp_path / "pages.db")) as stage:
        transport = httpx2.ASGITransport(app=stage.app, root_path="/inside")
        async with httpx2.AsyncClient(transport=transport, base_url="http://service") as client:
            document = (await client.get("/inside/ui")).text
            assert f'src="/inside/ui/files/{site().digest}/app.js"' in document


async def test_a_one_time_link_signs_in_once(tmp_path: Path) -> None:
    async with on(migrated_file(tmp_path / "pages.db")) as stage:
        code = stage.app.service.links.make(await stage.key("read"))
        async with stage.client() as client:
            first = await client.post("/session/link", json={"code": code})
            assert first.status_code == 201, first.text
            assert first.json()["scopes"] == ["read"]
            assert (await client.get("/session")).json()["principal"] == "ann"
        async with stage.client() as client:
            told(await client.post("/session/link", json={"code": code}), 401, "unauthenticated")
            told(await client.post("/session/link", json={"code": "guessed"}), 401, "unauthenticated")


def test_a_link_ends_after_a_while() -> None:
    moments = iter([0.0, LINK_SECONDS - 1, 0.0, LINK_SECONDS + 1])
    links = Links(lambda: next(moments))
    assert links.take(links.make("sk_a")) == "sk_a"
    assert links.take(links.make("sk_b")) is None
