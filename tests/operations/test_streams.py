"""Readers of streams: from a piece on, while they grow, over new attempts, and many of them with one reader."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import NotFound
from stepkeep.operations.streams import reading, tailing
from stepkeep.operations.streams.reading import StreamPiece, StreamReader, begin_attempt
from tests.operations.codecs import KeyringCodec
from tests.workbench import eventually

AGAIN = sk.Retry(max_attempts=4, initial="1ms", max="1ms")


def assembled(pieces: list[StreamPiece]) -> dict[tuple[str, str], list[Any]]:
    """What a reader has that does what the pieces say."""
    found: dict[tuple[str, str], list[tuple[tuple[int, int], Any]]] = {}
    for piece in pieces:
        mine = found.setdefault((piece.step, piece.name), [])
        fence, place = map(int, piece.position.split("."))
        if piece.restart:
            keeps = (0, 0) if piece.keeps is None else tuple(map(int, piece.keeps.split(".")))
            mine[:] = [one for one in mine if one[0] <= keeps]
        mine += [((fence, place + number), chunk) for number, chunk in enumerate(piece.chunks)]
    return {stream: [chunk for _, chunk in chunks] for stream, chunks in found.items()}


def talking(workflow: sk.Workflow) -> sk.Workflow:
    """A step that replaces, goes on after a chunk, and ends with the fourth attempt."""

    async def talk(ctx: sk.Context) -> None:
        tokens = ctx.stream("tokens", after={3: "2.1", 4: "last"}.get(ctx.attempt))
        for number in range(3):
            tokens.write(f"{ctx.attempt}{number}")
        ctx.stream("facts", after="last" if ctx.attempt > 1 else None).write({"attempt": ctx.attempt})
        if ctx.attempt < 4:
            raise ConnectionError("later")

    workflow.step("talk", talk, retry=AGAIN)
    return workflow


TOKENS = ["20", "21", "30", "31", "32", "40", "41", "42"]


def test_what_counts_is_read_page_by_page_from_every_piece_on(database_url: str) -> None:
    with sk.Engine(database_url) as engine:
        run = engine.run(talking(sk.Workflow("paged"))).id
        listed = {one.name: (one.step, one.chunks, one.position) for one in engine.streams.list(run).streams}
        assert listed == {"tokens": ("talk", 8, "4.2"), "facts": ("talk", 4, "4.0")}
        whole = engine.streams.read(run, "*")
        assert whole.over
        assert not any(piece.restart for piece in whole.pieces), "a new reader drops nothing"
        facts = [{"attempt": number} for number in range(1, 5)]
        assert assembled(whole.pieces) == {("talk", "tokens"): TOKENS, ("talk", "facts"): facts}
        pieces, page = list[StreamPiece](), engine.streams.read(run, "tokens", limit=1)
        while page.pieces:
            pieces += page.pieces
            page = engine.streams.read(run, "tokens", after=page.after, limit=1)
        assert assembled(pieces) == {("talk", "tokens"): TOKENS}
        assert list(engine.tail(run, "tokens", step="talk")) == [one for one in whole.pieces if one.name == "tokens"]
        assert engine.streams.read(run, "other").pieces == []
        with pytest.raises(NotFound, match="no step nobody"):
            engine.streams.read(run, "tokens", step="nobody")
        with pytest.raises(NotFound):
            engine.streams.list("01900000-0000-7000-8000-000000000000")
        with pytest.raises(sk.InvalidInput):
            engine.streams.read(run, "a b")


async def test_a_reader_that_follows_is_told_to_start_again(database_url: str) -> None:
    """At any piece at which it came, it has in the end what counts."""
    async with AsyncEngine(database_url) as engine:
        run = (await engine.run(talking(sk.Workflow("followed")))).id
        rows = await reading.read_rows(engine.store, "default", run)
        for seen in range(1, len(rows) + 1):
            # The pieces that a reader got live, while there were no later rows.
            reader = StreamReader(engine.transactor, "default", run, "tokens", None, 0)
            await reader.begin()
            assert reader._fold is not None
            reader._fold._snapshot = 0
            live = reader.take(rows[:seen])
            later = [piece async for piece in engine.tail(run, "tokens", after=seen)]
            assert assembled([*live, *later])["talk", "tokens"] == TOKENS, seen


def test_an_attempt_goes_on_after_the_last_chunk_that_still_counts() -> None:
    assert begin_attempt([(1, 4), (2, 3)], 3, 1, 9) == [(1, 4), (3, 0)], "no chunk comes back that was replaced"
    assert begin_attempt([(2, 3)], 3, 1, 9) == [(3, 0)]
    assert begin_attempt([], 3, 1, 9) == [(3, 0)]


async def test_all_followers_of_a_process_share_one_reader(database_url: str) -> None:
    """Statements do not grow with readers, and each gets every chunk while the handler still runs."""
    go_on, written = asyncio.Event(), 20
    workflow = sk.Workflow("shared")

    async def talk(ctx: sk.Context) -> None:
        for number in range(written):
            ctx.stream("tokens").write(number)
            await asyncio.sleep(0.01)
        await go_on.wait()

    workflow.step("talk", talk)
    async with AsyncEngine(database_url, loop="mine") as engine:
        started = await engine.start(workflow)
        async with await engine.start_worker():
            seen = [0] * 30

            async def follow(place: int) -> list[StreamPiece]:
                found = []
                async for piece in engine.tail(started.run_id, "tokens"):
                    found.append(piece)
                    seen[place] += len(piece.chunks)
                    if min(seen) == written:
                        go_on.set()
                return found

            async with asyncio.timeout(30):
                told = await asyncio.gather(*(follow(place) for place in range(len(seen))))
            assert all(assembled(one) == {("talk", "tokens"): list(range(written))} for one in told)
            alone = engine.stream_tail.polls
            assert alone < 200, "each follower has read for itself"
            assert engine.stream_tail.followers == 0


async def test_a_reader_that_does_not_keep_up_is_cut_off_and_may_come_back(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailing, "MOST_KEPT_ROWS", 3)
    go_on, workflow = asyncio.Event(), sk.Workflow("slow")

    async def talk(ctx: sk.Context) -> None:
        for number in range(12):
            ctx.stream("tokens").write(number)
            await eventually(partial(_has, ctx.run_id, number + 1))
            await go_on.wait()

    async def _has(run_id: str, count: int) -> bool:
        return len(await reading.read_rows(engine.store, "default", run_id)) >= count

    workflow.step("talk", talk)
    async with AsyncEngine(database_url, loop="mine") as engine:
        started = await engine.start(workflow)
        async with await engine.start_worker():
            pieces = engine.tail(started.run_id)
            found = [await anext(pieces)]
            go_on.set()
            await eventually(lambda: _is_told(engine))
            with pytest.raises(tailing.CutOff) as cut:
                await anext(pieces)
            assert cut.value.number == found[-1].number
            found += [piece async for piece in engine.tail(started.run_id, after=cut.value.number)]
            assert assembled(found) == {("talk", "tokens"): list(range(12))}


async def _is_told(engine: AsyncEngine) -> bool:
    return any(one.is_over for one in engine.stream_tail._followed.values())


def test_sealed_chunks_are_opened_with_the_key_and_hidden_without_it(database_url: str) -> None:
    workflow = sk.Workflow("sealed-stream")

    async def talk(ctx: sk.Context) -> None:
        ctx.stream("tokens").write("CANARY")

    workflow.step("talk", talk)
    with sk.Engine(database_url, payload_codec=KeyringCodec({"k1": b"key"})) as engine:
        run = engine.run(workflow).id
        assert [piece.chunks for piece in engine.streams.read(run, "tokens").pieces] == [["CANARY"]]
    with sk.Engine(database_url) as engine:
        assert [piece.chunks for piece in engine.streams.read(run, "tokens").pieces] == [["[encrypted]"]]


def test_streams_are_archived_and_go_with_their_run(database_url: str, tmp_path: Path) -> None:
    import gzip
    import json

    with sk.Engine(database_url) as engine:
        run = engine.run(talking(sk.Workflow("kept"))).id
        engine.prune(keep=0, archive=tmp_path)
        [rest] = tmp_path.glob("*.rest.jsonl.gz")
        [line] = gzip.decompress(rest.read_bytes()).splitlines()
        kept = json.loads(line)["streams"]
        assert [json.loads(row["body"]) for row in kept if row["name"] == "tokens"][-1] == ["40", "41", "42"]
        with pytest.raises(NotFound):
            engine.streams.list(run)


def test_the_judge_compares_the_rows_with_the_ends_in_the_journal(database_url: str) -> None:
    from stepkeep.kernel.machine.rows import StreamPart, rows_of
    from stepkeep.store.change import Write

    with sk.Engine(database_url) as engine:
        run = engine.run(talking(sk.Workflow("judged"))).id
        assert engine.certify(run).ok
        late = StreamPart(
            tenant="default", run_id=run, no=0, name="tokens", fence=4, start=3, count=1, at=1, body=b'["late"]'
        )
        engine._call(engine._core.store.change([], lambda loaded: Write(rows=rows_of([late]))))
        certificate = engine.certify(run)
        assert not certificate.ok
        assert "is not stored as the journal says" in str(certificate.payloads)
