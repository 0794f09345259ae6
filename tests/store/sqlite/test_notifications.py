"""Hints by a touched file: its loss is survived, and where the kernel does not tell of touches they are looked for."""

import os
from pathlib import Path

import pytest
from tests.store.conftest import opened
from tests.store.listening import listening, ready_to_hear
from tests.store.values import QUEUE, new_run, ready, save

from stepkeep.store.sqlite import inotify
from stepkeep.store.sqlite.notifications import MOST_FILE_BYTES


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/stepkeep.db"


async def test_a_bell_that_is_removed_is_hung_again(url: str, tmp_path: Path) -> None:
    async with opened(url) as store, opened(url) as other:
        with listening(other) as ear:
            await ready_to_hear(other, ear)
            (tmp_path / "stepkeep.db-notify").unlink()
            assert (await ear.hears()).topics is None
            await ready_to_hear(other, ear)
            await save(store, new_run(1, (ready(1),)))
            await ear.hears_of(QUEUE)


async def test_a_file_that_was_emptied_makes_a_listener_poll_everything(url: str, tmp_path: Path) -> None:
    async with opened(url) as store, opened(url) as other:
        with listening(other) as ear:
            await ready_to_hear(other, ear)
            await save(store, new_run(1, (ready(1),)))
            await ear.hears_of(QUEUE)
            os.truncate(tmp_path / "stepkeep.db-notify", 0)
            assert (await ear.hears()).topics is None


async def test_a_file_that_has_grown_is_emptied_by_the_next_sender(url: str, tmp_path: Path) -> None:
    async with opened(url) as store, opened(url) as other:
        with listening(other) as ear:
            await ready_to_hear(other, ear)
            file = tmp_path / "stepkeep.db-notify"
            file.write_text("somebody 999\n" * (MOST_FILE_BYTES // 13 + 1))
            await ear.hears_of(999)
            await save(store, new_run(1, (ready(1),)))
            await ear.hears_of(QUEUE)
            assert file.stat().st_size < 1_000


async def test_touches_are_seen_where_the_kernel_does_not_tell_of_them(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inotify, "watch", lambda file: None)
    async with opened(url) as store, opened(url) as other:
        with listening(other) as ear:
            await ready_to_hear(other, ear)
            await save(store, new_run(1, (ready(1),)))
            await ear.hears_of(QUEUE)


async def test_a_file_that_cannot_be_made_leaves_the_work_to_polling(url: str, tmp_path: Path) -> None:
    async with opened(url) as store:
        (tmp_path / "stepkeep.db-notify").mkdir()
        with listening(store):
            await save(store, new_run(1, (ready(1),)))
            assert await store.has_ready([QUEUE])


async def test_ringing_where_nobody_ever_listened_makes_no_file(url: str, tmp_path: Path) -> None:
    async with opened(url) as store:
        await save(store, new_run(1, (ready(1),)))
    assert not (tmp_path / "stepkeep.db-notify").exists()


async def test_the_same_file_by_another_name_has_the_same_bell(url: str, tmp_path: Path) -> None:
    async with opened(url) as store:
        (tmp_path / "elsewhere").symlink_to(tmp_path, target_is_directory=True)
        async with opened(f"sqlite:///{tmp_path}/elsewhere/stepkeep.db") as other:
            with listening(other) as ear:
                await ready_to_hear(other, ear)
                await save(store, new_run(1, (ready(1),)))
                await ear.hears_of(QUEUE)
