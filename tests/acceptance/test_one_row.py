"""A new operation is one method with a row: the engine, the blocking engine, HTTP, the client, the command line and
agents have it, and each refuses the same value with the same words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx2
import msgspec
import pytest
from msgspec import UNSET, Meta, UnsetType
from typer.testing import CliRunner

import stepkeep as sk
from stepkeep.api.access import ROUTES
from stepkeep.cli.arguments import arg
from stepkeep.cli.command import Commands, CommandValues
from stepkeep.cli.main import app
from stepkeep.client import AsyncClient
from stepkeep.definition.python.registry import Registry
from stepkeep.engine import AsyncEngine, Engine
from stepkeep.engine.base import AsyncGroup, group_at
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.kernel.errors import Conflict, InvalidInput
from stepkeep.mcp.tools import make_server
from stepkeep.operations.access import OPERATE, OPERATIONS, READ
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.operation import CATALOGUE, Actor, Limit, Name, group, operation
from tests.databases import migrated_file
from tests.service import TENANT, make_key, serving

Size = Literal["small", "large"]
Pages = Annotated[int, Meta(ge=1, le=1000, description="How many pages it has.")]
TOO_MANY = "pages: Input should be less than or equal to 1000"


class Book(Answer, kw_only=True):
    """A book."""

    title: str
    pages: int
    size: Annotated[Size, says("How large it is.")]


class Books(Answer, kw_only=True):
    """Books by title."""

    books: list[Book]
    next: str | UnsetType | None = UNSET


class Titles(Answer, kw_only=True):
    """A page of titles."""

    titles: list[str]
    next: str | None


SHELF: dict[str, Book] = {}


def make_groups() -> tuple[type, type]:
    @group("shelf", "Shelf")
    class AsyncShelf(AsyncGroup):
        """Books."""

        @operation(OPERATE, "POST /shelf", "add_book", "Add a book", status=201, done="Added", agents="changes")
        async def add(self, title: Name, *, pages: Pages = 1, size: Size = "small", by: Actor = None) -> Book:
            """Put a book on the shelf. One title is there once."""
            if title in SHELF:
                raise Conflict(f"there is a book {title} already.")
            self.access.caller(by)
            return SHELF.setdefault(title, Book(title=title, pages=pages, size=size))

        @operation(READ, "GET /shelf", "list_books", "Books", pages="books", page_key="title", agents="reads")
        async def list(self, *, size: Size | None = None) -> Books:
            """The books, or those of one size."""
            return Books(books=[one for _, one in sorted(SHELF.items()) if size in (None, one.size)])

        @operation(READ, "GET /titles", "list_titles", "Titles", pages="titles", page_size=2)
        async def titles(self, *, after: str = "", limit: Limit = 1000) -> Titles:
            """The titles after one of them."""
            found = sorted(title for title in SHELF if title > after)
            return Titles(titles=found[:limit], next=found[limit - 1] if len(found) > limit else None)

        @operation(OPERATE, summary="Throw all books away")
        async def clear(self) -> None:
            """Empty the shelf."""
            SHELF.clear()

    class Shelf(Blocking[AsyncShelf]):
        add, list = blocking(AsyncShelf.add), blocking(AsyncShelf.list)
        titles, clear = blocking(AsyncShelf.titles), blocking(AsyncShelf.clear)

    return AsyncShelf, Shelf


@pytest.fixture(autouse=True)
def shelf(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The operations of this module, for one test."""
    tables: tuple[dict[str, Any], ...] = (CATALOGUE, OPERATIONS, ROUTES)
    before = [dict(one) for one in tables]
    of_engine, of_program = make_groups()
    monkeypatch.setattr(AsyncEngine, "shelf", property(lambda self: of_engine(self)), raising=False)
    monkeypatch.setattr(AsyncClient, "shelf", property(lambda self: group_at(of_engine, self.remote)), raising=False)
    monkeypatch.setattr(Engine, "shelf", property(lambda self: of_program(self._core.shelf, self._call)), raising=False)
    yield
    SHELF.clear()
    for table, was in zip(tables, before, strict=True):
        table.clear()
        table.update(was)


async def test_the_engine_has_it_and_checks_its_arguments(tmp_path: Path) -> None:
    async with AsyncEngine(migrated_file(tmp_path / "s.db"), actor="ann") as engine:
        made = await engine.shelf.add("Dune", pages=412, size="large")  # type: ignore[attr-defined]
        assert (made.title, made.pages, made["size"]) == ("Dune", 412, "large")
        with pytest.raises(InvalidInput) as refused:
            await engine.shelf.add("", pages=1001, size="huge")  # type: ignore[attr-defined]
    assert str(refused.value) == (
        f"title: String should have at least 1 character; {TOO_MANY}; size: Input should be 'large' or 'small'"
    )


def test_every_face_has_it_and_refuses_with_the_same_words(tmp_path: Path) -> None:
    url = migrated_file(tmp_path / "s.db")
    key = make_key(url, "ann", "read", "operate")
    with sk.open(url, actor="ann") as engine:
        engine.shelf.add("Dune", pages=412, size="large")
        with pytest.raises(InvalidInput, match=TOO_MANY):
            engine.shelf.add("Emma", pages=1001)
    with serving(url, Registry()) as address:
        with httpx2.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}) as http:
            added = http.post("/shelf", json={"title": "Emma", "pages": 474})
            assert (added.status_code, added.json()) == (201, {"title": "Emma", "pages": 474, "size": "small"})
            wrong = http.post("/shelf", json={"title": "It", "pages": 1001, "colour": "red"})
            assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_input")
            assert [f"{one['at']}: {one['message']}" for one in wrong.json()["errors"]] == [
                f"body.{TOO_MANY}",
                "body.colour: Extra inputs are not permitted",
            ]
            assert http.post("/shelf", json={"title": "Emma"}).status_code == 409
            first = http.get("/shelf", params={"limit": 1}).json()
            assert ([one["title"] for one in first["books"]], first["next"]) == (["Dune"], "Dune")
            rest = http.get("/shelf", params={"limit": 1, "cursor": "Dune"}).json()
            assert ([one["title"] for one in rest["books"]], rest["next"]) == (["Emma"], None)
            described = http.get("/openapi.json").json()["paths"]["/shelf"]["post"]
            assert described["requestBody"]["content"]["application/json"]["schema"]["required"] == ["title"]
        with sk.open(address, key=key) as client:
            assert client.shelf.add("It", pages=1000) == {"title": "It", "pages": 1000, "size": "small"}
            assert [one.title for one in client.shelf.list(size="small").books] == ["Emma", "It"]
            with pytest.raises(InvalidInput, match=TOO_MANY):
                client.shelf.add("Ulysses", pages=1001)
            with pytest.raises(Conflict, match="there is a book It already"):
                client.shelf.add("It")


def test_a_list_of_pages_is_whole_in_the_client_and_goes_on_after_its_limit(tmp_path: Path) -> None:
    url = migrated_file(tmp_path / "s.db")
    SHELF.update({title: Book(title=title, pages=1, size="small") for title in "abcde"})
    key = make_key(url, "ann", "read", "operate")
    with serving(url, Registry()) as address, sk.open(address, key=key) as client:
        with httpx2.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}) as http:
            assert http.get("/titles").json() == {"titles": ["a", "b"], "next": "b"}
            assert http.get("/titles", params={"after": "b", "limit": 9}).json() == {
                "titles": ["c", "d", "e"],
                "next": None,
            }
        assert client.shelf.titles() == {"titles": ["a", "b", "c", "d", "e"], "next": None}
        assert client.shelf.titles(after="a", limit=3) == {"titles": ["b", "c", "d"], "next": "d"}


def test_what_has_no_address_needs_the_database(tmp_path: Path) -> None:
    url = migrated_file(tmp_path / "s.db")
    SHELF["Dune"] = Book(title="Dune", pages=412, size="large")
    with (
        serving(url, Registry()) as address,
        sk.open(address, key=make_key(url, "ann", "operate")) as client,
        pytest.raises(InvalidInput, match=r"`shelf\.clear` needs the database itself: open the engine with its URL"),
    ):
        client.shelf.clear()
    with sk.open(url) as engine:
        engine.shelf.clear()
    assert not SHELF


def test_a_key_without_its_scope_is_refused_everywhere(tmp_path: Path) -> None:
    url = migrated_file(tmp_path / "s.db")
    key = make_key(url, "ann", "read")
    with sk.open(url, tenant=TENANT, key=key) as engine, pytest.raises(sk.NotAllowed, match="lacks the scope operate"):
        engine.shelf.add("Dune")
    with (
        serving(url, Registry()) as address,
        sk.open(address, key=key) as client,
        pytest.raises(sk.NotAllowed, match="lacks the scope operate"),
    ):
        client.shelf.add("Dune")


def test_the_command_line_has_it(tmp_path: Path) -> None:
    url = migrated_file(tmp_path / "s.db")
    run = CliRunner().invoke
    made = run(app, ["call", "shelf.add", "title=Dune", "pages=412", "--db", url])
    assert (made.exit_code, json.loads(made.stdout)) == (0, {"title": "Dune", "pages": 412, "size": "small"})
    wrong = run(app, ["call", "shelf.add", "title=Emma", "pages=1001", "--db", url])
    assert isinstance(wrong.exception, InvalidInput)
    assert str(wrong.exception) == TOO_MANY
    unknown = run(app, ["call", "shelf.add", "colour=red", "--db", url])
    assert str(unknown.exception) == "'colour=red' is no argument of shelf.add. It takes: title, pages, size, by."
    assert "shelf.add: Add a book" in run(app, ["call", "--db", url]).stdout


def test_a_command_of_its_own_has_the_arguments_of_the_row_and_a_renderer(tmp_path: Path) -> None:
    url = migrated_file(tmp_path / "s.db")
    shelf = Commands()

    @shelf.operation("add", "shelf.add", under="book", title=arg("TITLE", "Its title."), size=None)
    def add(found: Book, asked: CommandValues) -> str:
        """Put a book on the shelf."""
        return f"{asked['title']} has {found.pages} pages; take it away: {asked.command('shelf', 'clear')}"

    @shelf.operation("list", "shelf.list", "List the books.", fails=lambda found: not found.books)
    def listed(found: Books, _: CommandValues) -> list[str]:
        return [one.title for one in found.books]

    run = CliRunner().invoke
    assert run(shelf.app, ["list", "--db", url], standalone_mode=False).return_value == 1
    made = run(shelf.app, ["add", "Dune", "--pages", "412", "--db", url], standalone_mode=False)
    assert made.stdout == f"Dune has 412 pages; take it away: stepkeep shelf clear --db {url}\n"
    told = run(shelf.app, ["add", "Emma", "--json", "--db", url])
    assert json.loads(told.stdout) == {"book": {"title": "Emma", "pages": 1, "size": "small"}}
    assert run(shelf.app, ["list", "--size", "small", "--db", url]).stdout == "Dune\nEmma\n"
    wrong = run(shelf.app, ["add", "It", "--pages", "1001", "--db", url])
    assert wrong.exit_code == 2
    assert "Input should be less than or equal to 1000" in wrong.stderr
    assert str(run(shelf.app, ["add", "", "--db", url]).exception) == "title: String should have at least 1 character"
    helped = run(shelf.app, ["add", "--help"]).stdout
    assert "How many pages it has." in helped
    assert "--size" not in helped


async def test_agents_have_it_as_a_tool(tmp_path: Path) -> None:
    async with AsyncEngine(migrated_file(tmp_path / "s.db"), actor="bot") as engine:
        server = make_server(engine)
        tools = {one.name: one for one in await server.list_tools()}
        assert tools["add_book"].input_schema["required"] == ["title"]
        assert tools["add_book"].input_schema["properties"]["pages"]["maximum"] == 1000
        made: Any = await server.call_tool("add_book", {"title": "Dune", "pages": 412})
        assert msgspec.json.decode(_text(made)) == {"title": "Dune", "pages": 412, "size": "small"}
        with pytest.raises(Exception, match=TOO_MANY):
            await server.call_tool("add_book", {"title": "Emma", "pages": 1001})


def _text(answer: Any) -> str:
    found = answer[0] if isinstance(answer, list | tuple) else answer.content[0]
    return str(found.text)
