"""Hints by NOTIFY: with the commit they speak of or after it, heard again after a cut, given up behind a pooler."""

import logging

import asyncpg
import pytest
from tests.store.conftest import opened
from tests.store.listening import Ear, listening, ready_to_hear
from tests.store.postgres.conftest import session
from tests.store.values import QUEUE, SECOND, new_run, ready, save
from tests.workbench import results_of, until

from stepkeep.kernel.errors import Contended
from stepkeep.store.change import Basis, Loaded, Write
from stepkeep.store.postgres.notifications import PostgresNotifier
from stepkeep.store.protocol import Notification, Store
from stepkeep_lab.torture.servers import pooler, pooler_program

LISTENERS = "select pid from pg_stat_activity where query ilike 'listen%' and datname = current_database()"


async def _cut_listeners(connection: "asyncpg.Connection[asyncpg.Record]") -> int:
    cut = f"select count(pg_terminate_backend(pid)) from ({LISTENERS}) as listener"
    return int(await connection.fetchval(cut))


async def test_a_listener_that_is_cut_off_comes_back_and_looks_at_once(store: Store, other: Store, url: str) -> None:
    with listening(other) as ear:
        await ready_to_hear(other, ear)
        async with session(url) as somebody:
            assert await _cut_listeners(somebody) == 1
        assert (await ear.hears()).topics is None
        await save(store, new_run(1, (ready(1),)))
        await ear.hears_of(QUEUE)


async def test_a_hint_travels_with_the_commit_it_speaks_of_and_is_not_sent_again(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Notification] = []

    async def send(notification: Notification) -> None:
        sent.append(notification)

    monkeypatch.setattr(store.notifier, "send", send)
    with listening(other) as ear:
        await ready_to_hear(other, ear)
        await store.write_if_unchanged(Write(new_runs=[new_run(1, (ready(1),))]), Loaded(now=0), Basis.NEW)
        assert (await ear.hears()).topics == {QUEUE}
        assert await other.has_ready([QUEUE])
        assert sent == []


async def test_of_what_was_not_written_nobody_is_told(store: Store, other: Store) -> None:
    now = await store.now()
    with listening(other) as ear:
        await ready_to_hear(other, ear)
        with pytest.raises(Contended):
            await store.write_if_unchanged(
                Write(new_runs=[new_run(1, (ready(1),))]), Loaded(now=now + 60 * SECOND), Basis.NEW
            )
        await store.write_if_unchanged(
            Write(new_runs=[new_run(2, (ready(2, queue=QUEUE + 1),))]), Loaded(now=now), Basis.NEW
        )
        assert (await ear.hears()).topics == {QUEUE + 1}


async def test_what_a_listener_does_not_understand_could_be_anything(store: Store, url: str) -> None:
    with listening(store) as ear:
        await ready_to_hear(store, ear)
        async with session(url) as somebody:
            await somebody.execute("notify stepkeep_stepkeep, 'later-version queue=7'")
        assert (await ear.hears()).topics is None


async def test_the_greeting_of_one_listener_wakes_no_other(store: Store, other: Store) -> None:
    with listening(store) as ear:
        await ready_to_hear(store, ear)
        with listening(other) as newcomer:
            await ready_to_hear(other, newcomer)
        assert ear.heard == []


@pytest.mark.skipif(pooler_program() is None, reason="PgBouncer is not installed")
async def test_behind_a_pooler_in_transaction_mode_polling_is_left_to_do_it(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "stepkeep.store.postgres.notifications")
    async with opened(url), pooler(url) as pooled, opened(pooled) as store:
        notifier = store.notifier
        assert isinstance(notifier, PostgresNotifier)
        notifier.probe_seconds, notifier.unheard_pause = 0.3, 0.05
        with listening(store) as ear:
            await _probed_several_times(store, ear)
            assert not store.notifier.is_connected
        await save(store, new_run(1, (ready(1),)))
        assert await store.has_ready([QUEUE])
    assert sum("LISTEN does not work" in record.message for record in caplog.records) == 1


async def _probed_several_times(store: Store, ear: Ear) -> None:
    probes = results_of(store.notifier, "_probe")
    await until(lambda: len(probes) >= 3)
    assert not any(hint.topics is None for hint in ear.heard)
