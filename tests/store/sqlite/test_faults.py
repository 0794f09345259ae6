"""When SQLite cannot: nothing is acknowledged that is not kept, the error says what to do, and it goes on after."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import apsw
import pytest
from tests.store.test_contract_change import increment
from tests.store.values import details, key, load, new_run, ready, save, want, writes
from tests.workbench import until

from stepkeep.kernel.errors import StoreError, StoreUnavailable
from stepkeep.store.change import Loaded, Write
from stepkeep.store.sqlite import connection
from stepkeep.store.sqlite.store import SqliteStore
from stepkeep.store.sqlite.turns import Turns


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    await store.migrate()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def paused(store: SqliteStore) -> AsyncIterator[None]:
    """Hold the writer inside a transaction, so that what is asked meanwhile gathers for the next one."""
    entered, go = asyncio.Event(), Event()
    loop = asyncio.get_running_loop()

    def decide(loaded: Loaded) -> Write:
        loop.call_soon_threadsafe(entered.set)
        go.wait()
        return Write()

    held = asyncio.ensure_future(store.change((), decide))
    await entered.wait()
    yield
    await asyncio.sleep(0)
    go.set()
    await held


async def on_the_writer(store: SqliteStore, work: Callable[[apsw.Connection], Any]) -> None:
    await store._write(work)


async def test_what_gathers_during_a_commit_shares_the_next_one(tmp_path: Path) -> None:
    async with opened(tmp_path / "app.db") as store:
        run: list[str] = []
        await on_the_writer(store, lambda c: c.set_profile(lambda statement, took: run.append(statement)))
        async with paused(store):
            many = [
                asyncio.ensure_future(store.change((), writes(Write(new_runs=[new_run(n, (ready(n),))]))))
                for n in range(50)
            ]
            await asyncio.sleep(0)
        await asyncio.gather(*many)
        # The one that set the notes up, the one that paused, and one for all fifty.
        assert run.count("commit") == 3
        assert sum((await store.count_runs("acme")).values()) == 50


async def test_a_full_disk_acknowledges_nothing_and_heals(tmp_path: Path) -> None:
    async with opened(tmp_path / "app.db") as store:
        await save(store, new_run(1))
        await on_the_writer(store, lambda c: c.execute("pragma max_page_count = 60").fetchall())
        big = new_run(2, details=details(2, input=b'"%s"' % (b"x" * 4_000_000)))
        async with paused(store):
            together = [
                asyncio.ensure_future(store.change([want(1)], increment(1))),
                asyncio.ensure_future(store.change((), writes(Write(new_runs=[big])))),
                asyncio.ensure_future(store.change([want(1)], increment(1))),
            ]
            await asyncio.sleep(0)
        answers = await asyncio.gather(*together, return_exceptions=True)
        assert isinstance(answers[1], StoreUnavailable)
        assert "full" in str(answers[1])
        kept = [answer for answer in answers if answer is None]
        assert (await load(store, want(1))).runs[key(1)].priority == len(kept)
        assert await store.read_run(*key(2)) is None

        await on_the_writer(store, lambda c: c.execute("pragma max_page_count = 1000000").fetchall())
        await save(store, big)
        assert await store.read_run(*key(2)) is not None


async def test_a_file_that_stays_locked_is_reported_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.2)
    async with opened(tmp_path / "app.db") as store:
        await save(store, new_run(1))
        holder = apsw.Connection(str(tmp_path / "app.db"))
        holder.execute("begin immediate")
        with pytest.raises(StoreUnavailable, match="locked by another transaction"):
            await store.change([want(1)], increment(1))
        assert await store.read_run(*key(1)) is not None
        holder.execute("rollback")
        holder.close()
        await store.change([want(1)], increment(1))
        assert (await load(store, want(1))).runs[key(1)].priority == 1


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every try of a connection to take a lock that another one holds."""
    made: list[int] = []
    really = connection._Patience.__call__

    def noted(self: connection._Patience, number: int) -> bool:
        made.append(number)
        return really(self, number)

    monkeypatch.setattr(connection._Patience, "__call__", noted)
    return made


async def test_a_long_wait_for_a_lock_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tries: list[int]
) -> None:
    monkeypatch.setattr(connection, "TOLD_SECONDS", 0.0)
    async with opened(tmp_path / "app.db") as store:
        await save(store, new_run(1))
        holder = apsw.Connection(str(tmp_path / "app.db"))
        holder.execute("begin immediate")
        waiting = asyncio.ensure_future(store.change([want(1)], increment(1)))
        await until(lambda: len(tries) > 10)
        assert caplog.text.count("is locked by another transaction") == 1
        holder.execute("commit")
        holder.close()
        await waiting


async def test_a_short_lock_is_waited_for(tmp_path: Path, tries: list[int]) -> None:
    async with opened(tmp_path / "app.db") as store:
        await save(store, new_run(1))
        holder = apsw.Connection(str(tmp_path / "app.db"))
        holder.execute("begin immediate")
        waiting = asyncio.ensure_future(store.change([want(1)], increment(1)))
        await until(lambda: len(tries) > 3)
        assert not waiting.done()
        holder.execute("commit")
        holder.close()
        await waiting


@pytest.mark.parametrize("content", [b"this is not a database, only text" * 300, b"\0" * 4096 + b"x" * 4096])
async def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "app.db").write_bytes(content)
    with pytest.raises(StoreUnavailable):
        await SqliteStore(tmp_path / "app.db").open()


async def test_a_place_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnavailable, match="cannot be used"):
        await SqliteStore(tmp_path / "file" / "app.db").open()
    with pytest.raises(StoreUnavailable):
        await SqliteStore(tmp_path).open()


async def test_closing_finishes_what_was_asked_for(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "app.db")
    await store.open()
    await store.migrate()
    async with paused(store):
        asked = [asyncio.ensure_future(save(store, new_run(n))) for n in range(10)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(store.close())
    await closing
    assert await asyncio.gather(*asked) == [None] * 10
    async with opened(tmp_path / "app.db") as again:
        assert sum((await again.count_runs("acme")).values()) == 10


async def test_the_file_is_durable_by_its_settings(tmp_path: Path) -> None:
    async with opened(tmp_path / "app.db") as store:
        settings: dict[str, Any] = {}

        def read(c: apsw.Connection) -> None:
            for name in ("journal_mode", "synchronous"):
                settings[name] = c.execute(f"pragma {name}").fetchall()[0][0]

        await on_the_writer(store, read)
        assert settings == {"journal_mode": "wal", "synchronous": 2}


async def test_a_reader_can_never_write(tmp_path: Path) -> None:
    async with opened(tmp_path / "app.db") as store:
        with pytest.raises(StoreUnavailable, match="cannot be opened for writing"):
            await store._look(lambda c: c.execute("delete from runs"))


async def test_a_transaction_the_user_ended_is_not_passed_off_as_committed(tmp_path: Path) -> None:
    async with opened(tmp_path / "app.db") as store:
        await save(store, new_run(1))
        with pytest.raises(StoreError, match="only Stepkeep may commit"):
            await _end_it_early(store)
        await store.change([want(1)], increment(1))


async def _end_it_early(store: SqliteStore) -> None:
    async with store.transaction() as transaction:
        transaction.connection.execute("rollback")


def test_turns_are_taken_in_the_order_of_asking() -> None:
    turns, order = Turns(), []
    turns.take()

    def ask(name: int) -> None:
        turns.take()
        order.append(name)
        turns.give_back()

    threads = [Thread(target=ask, args=(name,)) for name in range(5)]
    for name, thread in enumerate(threads):
        thread.start()
        while len(turns._waiting) <= name:
            time.sleep(0.001)
    turns.give_back()
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]
