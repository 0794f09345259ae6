"""From a URL to a store, or to a sentence that says what to write instead."""

import subprocess
import sys
from pathlib import Path

import pytest

from stepkeep.kernel.errors import InvalidInput, StoreUnavailable
from stepkeep.store.connect import connect
from stepkeep.store.sqlite.store import SqliteStore
from stepkeep.store.statements import load_statements


def test_three_slashes_are_relative_and_four_absolute(tmp_path: Path) -> None:
    assert connect("sqlite:///app.db").url == "sqlite:///app.db"
    assert connect(f"sqlite:///{tmp_path}/app.db").url == f"sqlite:///{tmp_path}/app.db"


async def test_the_file_is_made_with_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = connect("sqlite:///new/place/app.db")
    await store.open()
    await store.close()
    assert (tmp_path / "new/place/app.db").is_file()


def test_postgresql_is_reached_under_both_its_names() -> None:
    for scheme in ("postgresql", "postgres"):
        assert type(connect(f"{scheme}://user:secret@host/db")).__name__ == "PostgresStore"


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "sqlite:///"])
def test_a_database_that_would_not_last_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="outlive the process"):
        connect(url)


def test_anything_else_is_refused_without_repeating_a_password() -> None:
    with pytest.raises(InvalidInput, match="is not a database Stepkeep knows") as refusal:
        connect("mysql://user:secret@host/db")
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("url", ["app.db", "", "sqlite:app.db", "sqlite://app.db"])
def test_whoever_means_a_file_is_told_how_to_name_it(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"For a file, write sqlite:///app\.db\."):
        connect(url)


MALFORMED = [
    "postgresql://u:CANARY#x@h/db",
    "postgresql://u:CANARY/x@h/db",
    "postgresql://u:CANARY?x@h/db",
    "postgresql://u:CANARY@[::1/db",
    "postgresql://u:CANARY@h:port/db",
    "postgresql://u:CANARY@h:99999/db",
    "postgresql://u:CANARY@h:0/db",
    "postgresql://u:CANARY@h/db?port=CANARY",
    "postgresql://u:CANARY@h/db?pool_size=CANARY",
    "postgresql://u:CANARY@h/db?pool_size=0",
    "postgresql://u:CANARY@h/db?command_timeout=99999999999999999999",
    "u:CANARY@h/db",
    "CANARY@h/db",
    "postgresql:u:CANARY@h/db",
    "u:CANARY@h://db",
    "mysql://u:CANARY@h/db",
    "sqlite://u:CANARY@h",
    "sqlite:///x.db?key=CANARY",
    "sqlite:////",
    "sqlite:///folder/",
    "sqlite:///..",
    "sqlite:///a\x00CANARY",
]


@pytest.mark.parametrize("url", MALFORMED)
def test_a_malformed_url_is_bad_input_and_no_part_of_it_that_may_be_secret_is_quoted(url: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        connect(url)
    assert "CANARY" not in str(refusal.value)
    assert refusal.value.__cause__ is None


async def test_what_the_driver_says_of_a_url_is_bad_input_without_its_password() -> None:
    for url in (
        "postgresql://u:CANARY@h/db?sslmode=wrong",
        "postgresql://u:CANARY@h/db?target_session_attrs=wrong",
    ):
        with pytest.raises(InvalidInput) as refusal:
            await connect(url).open()
        assert "CANARY" not in str(refusal.value), url


def test_parameters_of_an_sqlite_url_are_refused_and_no_file_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="has no parameters"):
        connect("sqlite:///x.db?mode=ro")
    assert list(tmp_path.iterdir()) == []


def test_a_path_names_an_sqlite_file(tmp_path: Path) -> None:
    assert connect(tmp_path / "app.db").url == f"sqlite:///{tmp_path}/app.db"
    for wrong in (5, None, b"sqlite:///x.db", object()):
        with pytest.raises(InvalidInput, match=r"named by a URL"):
            connect(wrong)  # type: ignore[arg-type]


def test_without_the_driver_the_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from stepkeep.store.connect import connect\n"
        "connect('sqlite:///app.db')\n"
        "try: connect('postgresql://host/db')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.startswith(StoreUnavailable.__name__)
    assert "stepkeep[postgres]" in said


async def test_a_store_that_is_not_open_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "app.db")
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.stuck_runs()
    await store.open()
    await store.open()
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.renew([]) or await store.stuck_runs()
    with pytest.raises(StoreUnavailable, match="not open"):
        store.transaction()


def test_both_stores_use_the_same_names_for_the_same_statements() -> None:
    sqlite = set(vars(load_statements("stepkeep.store.sqlite")))
    postgres = set(vars(load_statements("stepkeep.store.postgres")))
    differ = {
        "sqlite": sqlite - postgres,
        "postgres": postgres - sqlite,
    }
    # One statement there writes what twelve write here; the server's clock and size have to be asked for; its journal
    # has parts, its tables a schema, and a business key a lock of its own.
    assert differ == {
        "sqlite": {
            "advance_deliveries",
            "has_course_deliveries",
            "has_ended_triggers",
            "note_endings",
            "start_deliveries",
            "insert_attempts",
            "insert_journal",
            "insert_run_details",
            "insert_steps",
            "update_run_unindexed_columns",
            "update_step_hot_columns",
            "update_runs",
            "update_standing_steps",
            "update_steps",
        },
        "postgres": {
            "drop_empty_weeks",
            "extend_journal",
            "find_claimable",
            "find_installations",
            "find_tenant_of_key",
            "find_tenant_of_session",
            "list_tenant_names",
            "lock_business_keys",
            "lock_people",
            "read_clock",
            "read_confinement",
            "read_status",
            "read_weeks",
            "share_people",
            "write_hot",
            "write_hot_columns",
        },
    }
