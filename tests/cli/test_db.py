"""`stepkeep db`: looking migrates nothing, a backup is whole, and grants are quiet."""

from __future__ import annotations

import asyncio
import shlex
import stat
from pathlib import Path

import pytest

import stepkeep as sk
from stepkeep.kernel.errors import SchemaMismatch
from stepkeep.store.connect import connect
from stepkeep.store.migrations import EARLIER, load_migrations
from tests.cli.conftest import HANDLERS, Cli
from tests.store.test_upgrade import at_version

NOBODYS = "01890000-0000-7000-8000-000000000001"
OLDER = EARLIER - 1
NEWEST = EARLIER + len(load_migrations("stepkeep.store.sqlite")) - 1


def older(path: Path) -> str:
    """A file as the version before left it."""
    url = f"sqlite:///{path}"

    async def make() -> None:
        async with at_version(url, OLDER):
            pass

    asyncio.run(make())
    return url


def applied(url: str) -> int:
    async def look() -> int:
        store = connect(url)
        await store.open()
        try:
            return len((await store.status()).applied)
        finally:
            await store.close()

    return asyncio.run(look())


@pytest.mark.parametrize(
    "words",
    [
        ("runs",),
        ("show", NOBODYS),
        ("status",),
        ("workers",),
        ("explain", NOBODYS),
        ("approvals",),
        ("definitions",),
        ("cancel", NOBODYS),
        ("db", "status"),
    ],
    ids=" ".join,
)
def test_a_command_that_looks_leaves_an_older_file_as_it_is(cli: Cli, home: Path, words: tuple[str, ...]) -> None:
    url = older(home / "old.db")
    said = cli(*words, "--db", url)
    assert said.status == 1
    assert f"stepkeep db migrate --db {url}" in said.out + said.err
    assert applied(url) == OLDER


def test_the_command_that_the_refusal_names_mends_it(cli: Cli, home: Path) -> None:
    url = older(home / "old.db")
    words = shlex.split(cli("runs", "--db", url).err.rpartition("run: ")[2])
    assert cli(*words[1:]).status == 0
    assert cli("runs", "--db", url).status == 0


def test_a_command_that_runs_steps_brings_an_older_file_up_to_date(cli: Cli, home: Path) -> None:
    url = older(home / "old.db")
    assert cli("run", "flow.yaml", "--app", HANDLERS, "--db", url).status == 0
    assert applied(url) == NEWEST


def test_an_engine_migrates_a_file_unless_it_is_told_not_to(tmp_path: Path) -> None:
    url = older(tmp_path / "old.db")
    with pytest.raises(SchemaMismatch, match="never migrates it"), sk.open(url, auto_migrate=False):
        pytest.fail("it opened")
    assert applied(url) == OLDER
    with sk.open(url) as engine:
        assert engine.runs()["runs"] == []
    assert applied(url) == NEWEST


def test_a_backup_of_a_database_in_use_has_its_runs_and_overwrites_nothing(cli: Cli, home: Path) -> None:
    url = f"sqlite:///{home}/live.db"
    assert cli("run", "gated.yaml", "--app", HANDLERS, "--db", url).status == 4
    with sk.open(url) as engine:
        [run] = engine.runs()["runs"]
        said = cli("db", "backup", "copy.db", "--db", url, "--json").json["backup"]
        assert said == {"file": "copy.db", "size_bytes": (home / "copy.db").stat().st_size}
        engine.approve(run["id"])
    assert stat.S_IMODE((home / "copy.db").stat().st_mode) == 0o600
    assert sorted(path.name for path in home.glob("copy.db*")) == ["copy.db"]
    [copied] = cli("runs", "--db", "sqlite:///copy.db", "--json").json["runs"]
    assert (copied["id"], copied["state"]) == (run["id"], "blocked")
    again = cli("db", "backup", "copy.db", "--db", url)
    assert again.status == 2
    assert "overwrites nothing" in again.err


def test_a_backup_keeps_the_schema_of_an_older_file(cli: Cli, home: Path) -> None:
    url = older(home / "old.db")
    assert cli("db", "backup", "copy.db", "--db", url).status == 0
    assert applied(url) == applied(f"sqlite:///{home}/copy.db") == OLDER


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("copy.db",), "there is no database"),
        (("x" * 300, "--db", "sqlite:///gated.yaml"), "cannot be written"),
        (("gated.yaml/copy.db", "--db", "sqlite:///gated.yaml"), "cannot be written"),
        (("copy.db", "--db", "sqlite:///gated.yaml"), "is damaged or is not an SQLite database"),
        (("nowhere/at/all/copy.db", "--db", "postgresql://x@localhost/y"), "pg_dump"),
    ],
)
def test_a_backup_that_cannot_be_made_says_why(cli: Cli, words: tuple[str, ...], said: str) -> None:
    answered = cli("db", "backup", *words)
    assert answered.status in (1, 2)
    assert said in answered.err
