"""When hints go out: at once while they are few, gathered while they are many, and the last ones before the end."""

import asyncio
from collections.abc import Collection
from uuid import UUID

import pytest
from tests.store.values import new_run, ready, save

from stepkeep.kernel.errors import StoreUnavailable
from stepkeep.store.notifications import (
    ANYTHING,
    LONGEST,
    MOST_NAMES,
    QUIET,
    SHORTEST,
    CoalescingNotifier,
    TopicQueue,
    decode,
    encode,
)
from stepkeep.store.protocol import RUNS_SETTLED, RUNS_STOPPED, Notification, Store


def test_the_first_hint_on_a_topic_goes_out_at_once() -> None:
    gathered = TopicQueue()
    gathered.add([1])
    assert gathered.take(100.0) == {1}
    gathered.add([2])
    assert gathered.take(100.0) == {2}


def test_a_second_hint_waits_a_little_and_is_not_lost() -> None:
    gathered = TopicQueue()
    gathered.add([1])
    gathered.take(100.0)
    gathered.add([1])
    assert gathered.take(100.0) == frozenset()
    assert gathered.pause(100.0) == pytest.approx(SHORTEST)
    assert gathered.take(100.0 + 2 * SHORTEST) == {1}
    assert gathered.is_empty


def _sent_in_a_second(rings_between_looks: int) -> int:
    gathered, sent, now = TopicQueue(), 0, 0.0
    while now < 1.0:
        for _ in range(rings_between_looks):
            gathered.add([1])
        sent += len(gathered.take(now))
        now += 0.001
    return sent


def test_a_busy_topic_is_heard_of_about_twenty_times_a_second() -> None:
    assert 15 <= _sent_in_a_second(rings_between_looks=5) <= 30


def test_a_topic_that_was_busy_counts_as_quiet_again_after_a_while() -> None:
    gathered, now = TopicQueue(), 0.0
    for _ in range(20):
        gathered.add([1])
        gathered.add([1])
        gathered.take(now)
        now += LONGEST
    gathered.add([1])
    now += 2 * QUIET
    assert gathered.take(now) == {1}
    gathered.add([1])
    assert gathered.pause(now) == pytest.approx(SHORTEST)


def test_what_is_due_may_travel_with_a_commit_and_takes_along_what_was_waiting() -> None:
    gathered = TopicQueue()
    assert gathered.take(100.0, [1]) == {1}
    gathered.add([2])
    assert gathered.take(100.0, [1]) == {2}
    assert gathered.is_empty
    assert gathered.take(100.0 + SHORTEST / 2, [1]) == frozenset()
    assert gathered.take(100.0 + 2 * SHORTEST, [1, 2]) == {1, 2}


def test_commits_that_come_fast_tell_of_a_topic_about_twenty_times_a_second() -> None:
    gathered, told, now = TopicQueue(), 0, 0.0
    while now < 1.0:
        if not (due := gathered.take(now, [1])):
            gathered.add([1])
        told += len(due)
        now += 0.0005
    assert 15 <= told <= 30


def test_one_busy_topic_does_not_hold_up_another() -> None:
    gathered = TopicQueue()
    gathered.add([1])
    gathered.take(0.0)
    gathered.add([1, 2])
    assert gathered.take(0.0) == {2}


async def test_what_is_told_of_can_be_seen_by_then(store: Store, other: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hint inside the transaction it speaks of would come too early, and would make commits wait for each other."""
    told, could_see = asyncio.Event(), []

    async def look(notification: Notification) -> None:
        could_see.append(await other.has_ready(notification.topics or ()))
        told.set()

    monkeypatch.setattr(store.notifier, "send", look)
    await save(store, new_run(1, (ready(1),)))
    async with asyncio.timeout(10):
        await told.wait()
    assert could_see == [True]


class _Recorder(CoalescingNotifier):
    def __init__(self, *, broken: bool = False) -> None:
        super().__init__()
        self.sent: list[frozenset[int]] = []
        self.named: list[frozenset[str] | None] = []
        self._broken = broken

    async def send(self, notification: Notification) -> None:
        if self._broken:
            raise StoreUnavailable("gone")
        self.sent.append(notification.topics or frozenset())
        self.named.append(notification.runs_of(RUNS_STOPPED))


def _published(notifier: _Recorder, *published: Collection[int]) -> list[frozenset[int]]:
    async def go() -> None:
        for topics in published:
            notifier.publish(Notification(frozenset(topics)))
            await asyncio.sleep(0)
        await notifier.close()

    asyncio.run(go())
    return notifier.sent


def test_closing_sends_what_was_published_last() -> None:
    first, *others = _published(_Recorder(), [1], [1], [2])
    assert (first, frozenset().union(*others)) == ({1}, {1, 2})


def test_publishing_no_topic_sends_nothing() -> None:
    assert _published(_Recorder(), []) == []


def test_a_notification_that_cannot_be_sent_is_dropped() -> None:
    assert _published(_Recorder(broken=True), [1], [2]) == []


def test_a_hint_concerns_its_topics_and_an_unspecific_one_everything() -> None:
    assert Notification(frozenset({1, 2})).concerns([2, 3])
    assert not Notification(frozenset({1, 2})).concerns([3])
    assert Notification().concerns([3])


def _stopped(*runs: str) -> Notification:
    return Notification(frozenset({RUNS_STOPPED}), {RUNS_STOPPED: frozenset(runs)})


async def test_notifications_that_are_sent_together_name_the_runs_of_all() -> None:
    notifier = _Recorder()
    for run in ("a", "b", "c"):
        notifier.publish(_stopped(run))
    await notifier.close()
    assert (notifier.named) == [{"a", "b", "c"}]


async def test_too_many_runs_to_name_are_any_run() -> None:
    notifier = _Recorder()
    for number in range(MOST_NAMES + 1):
        notifier.publish(_stopped(f"run-{number}"))
    await notifier.close()
    assert (notifier.named) == [None]


def test_a_notification_arrives_as_it_was_sent() -> None:
    sent = Notification(frozenset({RUNS_STOPPED, RUNS_SETTLED, 7}), {RUNS_STOPPED: frozenset({"a", "b"})})
    sender, _, text = encode("me", sent).partition(" ")
    assert (sender, decode(text)) == ("me", sent)
    assert sent.runs_of(RUNS_STOPPED) == {"a", "b"}
    assert sent.runs_of(RUNS_SETTLED) is None
    assert sent.runs_of(9) == frozenset()


def test_a_text_that_is_too_long_names_the_runs_of_fewer_topics() -> None:
    few = frozenset(str(UUID(int=number)) for number in range(3))
    many = frozenset(str(UUID(int=number)) for number in range(MOST_NAMES + 50))
    topics = frozenset({RUNS_STOPPED, 7})
    said = encode("me", Notification(topics, {RUNS_STOPPED: few, 7: many})).partition(" ")[2]
    assert decode(said) == Notification(topics, {RUNS_STOPPED: few})


def test_as_many_runs_as_a_notification_names_fit_into_its_text() -> None:
    runs = frozenset(str(UUID(int=number)) for number in range(MOST_NAMES))
    sent = Notification(frozenset({RUNS_SETTLED, 7}), {RUNS_SETTLED: runs})
    assert decode(encode("a1b2c3d4e5f6", sent).partition(" ")[2]) == sent


def test_a_text_that_is_too_long_or_not_understood_means_anything() -> None:
    many = Notification(frozenset(range(5_000)))
    for said in (encode("me", many).partition(" ")[2], "later-version queue=7", ""):
        assert decode(said) == ANYTHING
