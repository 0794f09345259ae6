"""`ctx.progress`: shown while an attempt runs, cheap for the handler, and gone when the attempt has ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.operations.codecs import KeyringCodec
from tests.workbench import TENANT
from tests.worker import process_handlers
from tests.worker.bed import QUICK, Bed, On, step

from stepkeep.cli.progress import RunProgress
from stepkeep.edges.secret_values import KNOWN
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.operations.remote.services import Service, StepProgress, encode_service
from stepkeep.operations.runs import diagnosis
from stepkeep.operations.runs.views import describe_run, describe_step
from stepkeep.worker.context import MOST_PROGRESS_TEXT, Context

SILENT = replace(QUICK, heartbeat_seconds=60.0, first_publish_seconds=60.0)
"""A worker that reports nothing by itself for a minute."""


async def progress_of(bed: Bed, run_id: str) -> dict[str, Any] | None:
    view = await describe_run(bed.transactor, run_id, tenant=TENANT)
    found: dict[str, Any] | None = view["steps"][0]["progress"]
    return found


async def work_until_told(bed: Bed, run_id: str, release: Callable[[], object]) -> list[dict[str, Any]]:
    """Work until a value was shown, release the handler, and work until the run has ended."""
    seen: list[dict[str, Any]] = []

    async def is_done() -> bool:
        if not seen and (found := await progress_of(bed, run_id)) is not None and found["fraction"] == 0.5:
            seen.append(found)
            [cause] = (await diagnosis.explain(bed.transactor, run_id, "a", tenant=TENANT)).causes
            seen.append({"explained": cause.sentence})
            seen.append((await describe_step(bed.transactor, run_id, "a", tenant=TENANT))["step"]["progress"])
            release()
        return (await bed.run(run_id)).state is RunState.SUCCEEDED

    async with asyncio.timeout(60):
        await bed.worker(SILENT).run_until(is_done)
    return seen


def check(seen: list[dict[str, Any]], text: str) -> None:
    assert seen[0] == {"fraction": 0.5, "text": text, "at": seen[0]["at"]}
    assert seen[0]["at"].endswith("Z")
    assert seen[1]["explained"].endswith(f": 50 % {text}.")
    assert seen[2]["text"] == text


async def test_progress_of_a_sync_handler_is_shown_while_it_runs_and_gone_afterwards(on_each: On) -> None:
    gate = threading.Event()

    def handler(ctx: Context) -> None:
        ctx.progress(0.5, "page 12")
        gate.wait(30)

    async with on_each() as bed:
        bed.handler("a", handler)
        run_id = await bed.start(step("a"))
        check(await work_until_told(bed, run_id, gate.set), "page 12")
        assert await progress_of(bed, run_id) is None
        entries = await bed.store.read_journal(TENANT, run_id, 0)
        assert not any(b"page 12" in entry.body for entry in entries)


async def test_progress_of_an_async_handler_is_shown(on_each: On) -> None:
    gate = threading.Event()

    async def handler(ctx: Context) -> None:
        ctx.progress(0.5, "row 7")
        await asyncio.to_thread(gate.wait, 30)

    async with on_each() as bed:
        bed.handler("a", handler)
        check(await work_until_told(bed, await bed.start(step("a")), gate.set), "row 7")


async def test_progress_of_a_handler_in_a_process_is_shown_and_its_last_value_arrives(
    on_each: On, tmp_path: Path
) -> None:
    marker = tmp_path / "go"

    async with on_each() as bed:
        bed.handler("a", process_handlers.tell, mode="process")
        run_id = await bed.start(step("a", inputs={"marker": str(marker)}))
        check(await work_until_told(bed, run_id, marker.touch), "half")
        assert await bed.output(run_id, 0) == "told"


async def test_ten_thousand_calls_cost_a_handful_of_reports(on_store: On, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []

    def handler(ctx: Context) -> None:
        for page in range(10_000):
            ctx.progress(page / 10_000, f"page {page}")

    async with on_store() as bed:
        report = bed.store.report_worker

        async def counted(tenant: str, worker_no: int, said: bytes) -> None:
            written.append(said)
            await report(tenant, worker_no, said)

        monkeypatch.setattr(bed.store, "report_worker", counted)
        bed.handler("a", handler)
        assert await bed.finish(await bed.start(step("a")), settings=SILENT) is RunState.SUCCEEDED
        assert len(written) <= 3


async def test_a_value_of_an_older_fence_of_another_run_or_step_is_not_shown(on_each: On) -> None:
    gate = threading.Event()

    async with on_each() as bed:
        bed.handler("a", lambda: gate.wait(30))
        run_id = await bed.start(step("a"))
        shown: list[Any] = []

        async def is_done() -> bool:
            held = (await bed.steps(run_id))[0]
            if held.state is StepState.RUNNING and held.worker is not None and not shown:
                said = StepProgress(
                    run_id=run_id, no=0, fence=held.fence, ago_us=0, fraction=0.25, text=msgspec.Raw(b'"x"')
                )
                others = (
                    replace(said, fence=held.fence - 1),
                    replace(said, run_id=run_id[::-1]),
                    replace(said, no=1),
                )
                for given in ((), others, (*others, said)):
                    await bed.store.report_worker(TENANT, held.worker, encode_service(Service(progress=given)))
                    shown.append(await progress_of(bed, run_id))
                gate.set()
            return (await bed.run(run_id)).state is RunState.SUCCEEDED

        async with asyncio.timeout(60):
            await bed.worker(SILENT).run_until(is_done)
        assert shown[:2] == [None, None]
        assert shown[2]["fraction"] == 0.25


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), float("inf"), "0.5", b"1", True, object(), [0.5]])
def test_a_fraction_that_is_no_number_from_0_to_1_is_refused(fraction: Any) -> None:
    ctx = Context(run_id="r", workflow="w", version=1, step="s")
    with pytest.raises(InvalidInput, match="progress: the fraction is a number from 0 to 1, or None"):
        ctx.progress(fraction)
    assert ctx.last_progress is None


@pytest.mark.parametrize("text", [None, 7, b"page", ["page"]])
def test_a_text_that_is_no_str_is_refused(text: Any) -> None:
    ctx = Context(run_id="r", workflow="w", version=1, step="s")
    with pytest.raises(InvalidInput, match="progress: the text is a str"):
        ctx.progress(0.5, text)


@pytest.mark.parametrize("fraction", [0, 1, 0.5, Decimal("0.4"), None])
def test_a_fraction_may_be_any_number_or_unknown(fraction: Any) -> None:
    ctx = Context(run_id="r", workflow="w", version=1, step="s")
    ctx.progress(fraction, "page")
    said = ctx.last_progress
    assert said is not None
    assert said.fraction == (None if fraction is None else float(fraction))


def said_of(text: str) -> str:
    ctx = Context(run_id="r", workflow="w", version=1, step="s")
    ctx.progress(None, text)
    assert ctx.last_progress is not None
    return ctx.last_progress.text


def test_the_text_is_bounded_on_one_line_and_inert() -> None:
    assert said_of("a\x1b[2Jb\nc") == "a\\x1b[2Jb\\nc"
    assert said_of("x" * MOST_PROGRESS_TEXT) == "x" * MOST_PROGRESS_TEXT
    for long in ("x" * 1_000_000, "\x1b" * 300, "é" * 201):
        assert len(said_of(long)) == MOST_PROGRESS_TEXT
        assert said_of(long).endswith("…")


def test_values_of_secrets_are_hidden_before_the_text_is_cut() -> None:
    KNOWN.remember({"API_KEY": "progress-canary-7731"})
    assert said_of("with progress-canary-7731") == "with [secret API_KEY]"
    assert "progress-can" not in said_of("x" * (MOST_PROGRESS_TEXT - 14) + "progress-canary-7731")


async def test_the_text_is_sealed_where_payloads_are(on_each: On) -> None:
    gate = threading.Event()
    stored: list[bytes] = []

    def handler(ctx: Context) -> None:
        ctx.progress(0.5, "customer ada")
        gate.wait(30)

    async with on_each() as bed:
        bed.transactor.payloads.seal.use(KeyringCodec({"k1": b"a key"}))
        bed.handler("a", handler)
        seen = await work_until_told(bed, await bed.start(step("a")), gate.set)
        stored.extend(report.body for report in await bed.store.list_worker_reports(TENANT))
        check(seen, "customer ada")
        assert b"fraction" in stored[0]
        assert b"ada" not in stored[0]


def test_a_live_picture_has_new_values_once_and_none_of_a_step_that_does_not_run() -> None:
    from tests.cli.test_progress import NAMES, STORY

    fold = RunProgress(NAMES.__getitem__, len(NAMES))
    for entry in STORY[:4]:
        fold.take(entry)
    told = fold.far(1, "40 % page 12", 5_000_000)
    assert told is not None
    assert told.line() == "00:00:05.000  convert  40 % page 12"
    assert fold.far(1, "40 % page 12", 6_000_000) is None
    assert fold.far(0, "99 %", 6_000_000) is None
    assert [one.said for one in fold.active()] == ["40 % page 12"]
