"""The virtual loop: time that costs nothing, processes that stand still or die, and one order of events per seed."""

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from stepkeep_lab.simulation.loop import Process, Stalled, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(Random(1))  # type: ignore[abstract]
    yield loop
    loop.close()


def test_an_hour_passes_at_once(loop: VirtualLoop) -> None:
    async def wait() -> float:
        await asyncio.sleep(3600)
        return loop.time()

    assert loop.run_until_complete(wait()) == 3600


def test_a_timeout_is_a_virtual_one(loop: VirtualLoop) -> None:
    async def wait() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        return loop.time()

    assert loop.run_until_complete(wait()) == 5


def test_waiting_for_nothing_is_found(loop: VirtualLoop) -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stalled):
        loop.run_until_complete(wait())


def test_a_paused_process_does_nothing_until_it_goes_on(loop: VirtualLoop) -> None:
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(loop.time())

    async def main() -> None:
        process = Process("p")
        loop.spawn(process, tick())
        await asyncio.sleep(2.5)
        loop.pause(process)
        await asyncio.sleep(10)
        loop.resume(process)
        await asyncio.sleep(1.6)

    loop.run_until_complete(main())
    assert ticks == [1, 2, 12.5, 13.5]


def test_a_killed_process_does_not_even_clean_up(loop: VirtualLoop) -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            done.append("cleaned up")

    async def main() -> None:
        process = Process("p")
        loop.spawn(process, work())
        await asyncio.sleep(1)
        loop.kill(process)
        await asyncio.sleep(10)

    loop.run_until_complete(main())
    assert done == []


def test_what_is_left_of_one_loop_does_not_hold_up_the_next() -> None:
    async def leave() -> None:
        asyncio.get_running_loop().call_soon(print, "too late")

    async def wait() -> float:
        await asyncio.sleep(1)
        return asyncio.get_running_loop().time()

    ended: float | None = None
    for work in (leave, wait):
        loop = VirtualLoop(Random(1))  # type: ignore[abstract]
        ended = loop.run_until_complete(work())
        loop.close()
    assert ended == 1


def order_of(seed: int) -> list[str]:
    loop = VirtualLoop(Random(seed))  # type: ignore[abstract]
    said: list[str] = []

    async def say(name: str) -> None:
        for number in range(3):
            said.append(f"{name}{number}")
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(loop.spawn(Process(name), say(name)) for name in "abc"))

    loop.run_until_complete(main())
    loop.close()
    return said


def test_the_order_between_processes_is_the_seeds_and_within_one_it_is_kept() -> None:
    orders = [order_of(seed) for seed in range(20)]
    assert orders == [order_of(seed) for seed in range(20)]
    assert len({tuple(order) for order in orders}) > 5
    for order in orders:
        for name in "abc":
            assert [word for word in order if word[0] == name] == [f"{name}{number}" for number in range(3)]
