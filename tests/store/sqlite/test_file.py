"""The database file: private to its owner, and missed as soon as it is moved, deleted or replaced."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import HANDLERS, finish, home, process
from tests.store.values import TENANT, new_run, save

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.definition import Definition, Handler, StepDefinition
from stepkeep.kernel.errors import DatabaseGone
from stepkeep.store.connect import connect
from stepkeep.store.protocol import Store
from stepkeep.store.records import RunFilter

__all__ = ["home", "process"]

PARTS = ("", "-wal", "-shm")


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o277], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(path: Path) -> dict[str, int]:
    found = [Path(f"{path}{part}") for part in (*PARTS, "-notifier")]
    return {file.name.removeprefix(path.name): stat.S_IMODE(file.stat().st_mode) for file in found if file.exists()}


async def test_a_new_database_is_its_owners_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "app.db"
    async with AsyncEngine(f"sqlite:///{path}") as engine:
        await save(engine.store, new_run(1))
        assert {part: modes(path)[part] for part in PARTS} == dict.fromkeys(PARTS, 0o600)


async def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    path.touch()
    path.chmod(0o640)
    async with AsyncEngine(f"sqlite:///{path}") as engine:
        await save(engine.store, new_run(1))
        assert {part: modes(path)[part] for part in PARTS} == dict.fromkeys(PARTS, 0o640)


async def test_a_link_to_a_file_that_is_not_there_yet_is_followed(tmp_path: Path) -> None:
    link = tmp_path / "app.db"
    link.symlink_to(tmp_path / "elsewhere.db")
    async with AsyncEngine(f"sqlite:///{link}") as engine:
        await save(engine.store, new_run(1))
    assert link.is_symlink()
    assert stat.S_IMODE((tmp_path / "elsewhere.db").stat().st_mode) == 0o600


async def test_a_program_may_change_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with AsyncEngine("sqlite:///app.db") as engine:
        (tmp_path / "below").mkdir()
        monkeypatch.chdir(tmp_path / "below")
        await save(engine.store, new_run(1))
        assert len(await engine.store.list_runs(RunFilter(tenant=TENANT))) == 1
        async with engine.store.transaction() as transaction:
            transaction.connection.execute("create table own (id)")
    assert sorted(name for name in os.listdir(tmp_path) if name.endswith(".db")) == ["app.db"]
    assert os.listdir(tmp_path / "below") == []


# -- a file that goes away -------------------------------------------------------------------------------------------
def delete(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def move_the_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def replace_it(path: Path) -> None:
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    copy.rename(path)


WAYS: list[Callable[[Path], None]] = [delete, move, move_the_folder, replace_it]


async def note(store: Store, meanwhile: Callable[[], None] = lambda: None) -> None:
    async with store.transaction() as transaction:
        transaction.connection.execute("create table own (id)")
        meanwhile()


@pytest.mark.parametrize("way", WAYS)
async def test_every_use_of_a_file_that_is_gone_says_so(tmp_path: Path, way: Callable[[Path], None]) -> None:
    path = tmp_path / "data" / "app.db"
    async with AsyncEngine(f"sqlite:///{path}") as engine:
        await save(engine.store, new_run(1))
        way(path)
        uses: dict[str, Callable[[], Any]] = {
            "write": lambda: save(engine.store, new_run(2)),
            "read": lambda: engine.store.list_runs(RunFilter(tenant=TENANT)),
            "transaction": lambda: note(engine.store),
            "run": lambda: engine.runs(),
        }
        for name, use in uses.items():
            with pytest.raises(DatabaseGone, match=r"app\.db was (moved or deleted|replaced)") as gone:
                await use()
            assert "put the file back" in str(gone.value), name
    assert not path.exists() or way is replace_it


@pytest.mark.parametrize("way", [delete, move, replace_it])
async def test_every_use_of_a_database_without_its_log_says_so(tmp_path: Path, way: Callable[[Path], None]) -> None:
    path = tmp_path / "app.db"
    async with AsyncEngine(f"sqlite:///{path}") as engine:
        await save(engine.store, new_run(1))
        way(tmp_path / "app.db-wal")
        for use in (
            lambda: save(engine.store, new_run(2)),
            lambda: engine.store.list_runs(RunFilter(tenant=TENANT)),
            lambda: note(engine.store),
        ):
            with pytest.raises(DatabaseGone, match=r"app\.db-wal was (moved or deleted|replaced)"):
                await use()  # type: ignore[no-untyped-call]


async def test_a_file_that_goes_away_inside_a_transaction_is_not_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with AsyncEngine(f"sqlite:///{path}") as engine:
        with pytest.raises(DatabaseGone):
            await note(engine.store, meanwhile=path.unlink)


async def test_a_store_may_be_opened_again_on_another_file(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    store = connect(f"sqlite:///{path}")
    await store.open()
    await store.migrate()
    await store.close()
    replace_it(path)
    await store.open()
    try:
        assert await store.list_runs(RunFilter(tenant=TENANT)) == []
    finally:
        await store.close()


def waiting_forever() -> Definition:
    return Definition(name="flow", version=1, steps=(StepDefinition(name="one", order=0, executor=Handler(name="h")),))


async def test_a_worker_ends_when_its_database_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, registry, called = tmp_path / "app.db", Registry(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def handler() -> None:
        path.unlink()
        loop.call_soon_threadsafe(called.set)

    registry.register(HandlerSpec(name="h", function=handler))
    async with AsyncEngine(f"sqlite:///{path}", registry=registry) as engine:
        await engine.start(waiting_forever())
        worker = engine.worker(concurrency=2)
        with pytest.raises(DatabaseGone, match="was moved or deleted"):
            await asyncio.wait_for(worker.serve(), 30)
    assert called.is_set()
    assert "the worker ends" in caplog.text
    assert caplog.text.count("trying again until it does") == 0


async def test_whoever_waits_for_a_run_hears_that_its_database_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with AsyncEngine(f"sqlite:///{path}") as engine:
        started = await engine.start(waiting_forever())
        waiting = asyncio.create_task(engine.wait(started.run_id))
        await asyncio.sleep(0)
        path.unlink()
        with pytest.raises(DatabaseGone):
            await asyncio.wait_for(waiting, 30)


def test_the_command_ends_with_1_and_says_what_to_do(process: Any, tmp_path: Path) -> None:
    worker = process("worker", "--app", HANDLERS, "--db", "sqlite:///app.db")
    assert worker.stderr is not None
    while "serves with" not in (line := worker.stderr.readline()):
        assert line
    (tmp_path / "app.db").rename(tmp_path / "moved.db")
    said = finish(worker)
    assert said.status == 1
    assert "app.db was moved or deleted while it was open" in said.err


def test_an_interrupted_worker_is_not_taken_for_one_whose_database_is_gone(process: Any) -> None:
    worker = process("worker", "--app", HANDLERS, "--db", "sqlite:///app.db")
    assert worker.stderr is not None
    while "serves with" not in (line := worker.stderr.readline()):
        assert line
    worker.send_signal(signal.SIGTERM)
    assert finish(worker).status == 0


def test_a_program_with_an_engine_is_told_too(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with sk.open(f"sqlite:///{path}") as engine:
        path.unlink()
        with pytest.raises(DatabaseGone):
            engine.runs()
