"""What an export says, and that nothing of the journal is lost in it, from a real store to the judge's verdict."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import strategies as st
from msgspec.structs import replace

from stepkeep import AsyncEngine, Workflow
from stepkeep.conformance.line import read_line
from stepkeep.conformance.report import Code
from stepkeep.conformance.verify import JudgedJournal, verify_lines
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects.registry import judged
from stepkeep.kernel.definition import SECOND, Approval, Definition
from stepkeep.kernel.errors import InvariantBroken, NotFound, StepkeepError, Unreadable
from stepkeep.kernel.machine.journal import GENESIS, Cause, Entry, Hop, SealedEntry, seal
from stepkeep.kernel.machine.states import Category
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.logs import log
from stepkeep.operations.logs.lines import Scribe, encode_line, unfold
from stepkeep.operations.logs.log import canonical_machines, export_all, export_run, export_together, export_worker
from stepkeep.operations.people.people import cancel, decide_gate, send
from stepkeep.operations.pipeline import workers
from stepkeep.store.records import RunFilter
from tests.conformance.logs import STORIES, log_of, sealed
from tests.damage import damage
from tests.kernel.driver import World, work
from tests.suites import drawn
from tests.workbench import ACTOR, TENANT, Bench, benches, chain, gate, task

MACHINES = canonical_machines()
SIGNED = Definition(
    name="signed",
    version=1,
    steps=(task("pack"), gate("sign", 1, ["pack"], approval=Approval()), task("ship", 2, ["sign"])),
)


@asynccontextmanager
async def on_a_bench(url: str) -> AsyncIterator[Bench]:
    async with benches(url) as [bench]:
        yield bench


async def exported(bench: Bench, run_id: str) -> list[dict[str, Any]]:
    return [line async for line in export_run(bench.transactor, run_id, tenant=TENANT)]


def verdict(lines: list[dict[str, Any]]) -> set[Code]:
    return {finding.code for finding in verify_lines(map(encode_line, lines), MACHINES).findings}


# -- from a real store -----------------------------------------------------------------------------------------------
async def test_the_export_of_a_real_run_verifies_before_and_after_its_end(database_url: str) -> None:
    async with on_a_bench(database_url) as bench:
        run_id = await bench.start(SIGNED, correlation_id="order-1")
        await send(bench.transactor, run_id, "early", b"{}", caller=Caller(TENANT, "shop"), message_id="m1")
        await bench.work_off()
        waiting = await exported(bench, run_id)
        await decide_gate(
            bench.transactor, run_id, approve=True, caller=Caller(TENANT, "approver"), comment="gut so – ✓"
        )
        await bench.work_off()
        ended = await exported(bench, run_id)
        assert verdict(waiting) == verdict(ended) == set()
        assert waiting[-1]["to_state"] == "blocked"
        assert ended[-1]["to_state"] == "succeeded"
        assert ended[: len(waiting) - 1] == waiting[:-1], "what was exported before stays as it was"
        found = await bench.store.read_run(TENANT, run_id)
        assert found is not None
        assert ended[-1]["metadata"] == {
            "tenant": TENANT,
            "run_id": run_id,
            "correlation_id": "order-1",
            "seq": found.run.seq,
            "entries": found.run.seq,
            "at": found.run.ended_at,
            "state": "succeeded",
            "hash": found.run.head.hex(),
        }
        assert {line["metadata"]["correlation_id"] for line in ended} == {"order-1"}
        assert [line["trigger"] for line in ended if line["event_type"] == "run_note"] == ["message_arrived"]


async def test_all_runs_of_a_tenant_are_exported_each_whole_and_a_filter_is_heeded(database_url: str) -> None:
    async with on_a_bench(database_url) as bench:
        ids = [await bench.start(chain("three", 3)) for _ in range(5)]
        await bench.work_off()
        stopped = await bench.start(chain("other", 2))
        await cancel(bench.transactor, stopped, caller=Caller(TENANT, ACTOR), reason="no longer needed")
        everything = [line async for line in export_all(bench.transactor, RunFilter(tenant=TENANT, limit=1))]
        assert verdict(everything) == set()
        heads = [line["entity_id"] for line in everything if line["event_type"] == "journal_head"]
        assert heads == [stopped, *reversed(ids)]
        others = [line async for line in export_all(bench.transactor, RunFilter(tenant=TENANT, workflow="other"))]
        assert {line["metadata"]["run_id"] for line in others} == {stopped}
        assert [line async for line in export_all(bench.transactor, RunFilter(tenant="nobody"))] == []


async def test_a_workers_journal_never_runs_backwards(database_url: str) -> None:
    """A claim may be later than the clock, as its run is; and the clock itself may be set back."""

    async with on_a_bench(database_url) as bench:
        worker = await workers.register(bench.store, tenant=TENANT, app="bench", capacity=1)
        worker = await workers.mark_busy(bench.store, worker, since=await bench.store.now() + 60 * SECOND)
        worker = await workers.mark_idle(bench.store, worker)
        silence = 60 * SECOND + workers.MISSED_BEATS * workers.HEARTBEAT + SECOND
        bench.store.clock_offset += silence
        assert await workers.retire_silent(bench.store, actor="sweep") == 1
        bench.store.clock_offset -= silence
        await workers.shut_down(bench.store, await workers.beat(bench.store, worker))
        lines = [line async for line in export_worker(bench.transactor, worker.id, tenant=TENANT)]
        assert verdict(lines) == set()
        assert [line["to_state"] for line in lines] == [
            "initializing", "idle", "busy", "idle", "unresponsive", "idle", "draining", "shutdown", "shutdown",
        ]  # fmt: skip


async def test_a_workers_life_is_exported_and_verifies(database_url: str) -> None:
    async with on_a_bench(database_url) as bench:
        worker = await workers.register(bench.store, tenant=TENANT, app="bench", capacity=1)
        worker = await workers.mark_busy(bench.store, worker)
        bench.store.clock_offset += workers.MISSED_BEATS * workers.HEARTBEAT + 1
        assert await workers.retire_silent(bench.store, actor="sweep") == 1
        worker = await workers.beat(bench.store, worker)
        await workers.shut_down(bench.store, worker)
        lines = [line async for line in export_worker(bench.transactor, worker.id, tenant=TENANT)]
        assert verdict(lines) == set()
        assert [line["to_state"] for line in lines] == [
            "initializing", "idle", "busy", "unresponsive", "idle", "draining", "shutdown", "shutdown",
        ]  # fmt: skip
        assert [line["severity"] for line in lines if line["severity"] != "info"] == ["error"]
        assert {line["event_type"] for line in lines} == {"worker_state_transition", "journal_head"}
        for place in range(len(lines)):
            assert verdict(lines[:place] + lines[place + 1 :]), f"dropping line {place + 1} goes unseen"


async def kept_until_the_error(lines: AsyncIterator[dict[str, Any]]) -> tuple[list[dict[str, Any]], Exception | None]:
    kept: list[dict[str, Any]] = []
    try:
        async for line in lines:
            kept.append(line)  # noqa: PERF401 - what came before the error counts
    except StepkeepError as error:
        return kept, error
    return kept, None


@pytest.mark.parametrize("together", [False, True], ids=["alone", "with workers"])
@pytest.mark.parametrize(
    "statement",
    [
        "update runs set category = 'bored' where id = '{run}'",
        "update journal set body = cast('{{}}' as {binary}) where run_id = '{run}' and seq = 2",
    ],
    ids=["row", "journal"],
)
async def test_an_export_goes_on_after_an_unreadable_run_and_names_it(
    database_url: str,
    statement: str,
    together: bool,
) -> None:
    async with on_a_bench(database_url) as bench:
        runs = [await bench.start(chain("three", 3)) for _ in range(3)]
        await bench.work_off()
        binary = "blob" if database_url.startswith("sqlite") else "bytea"
        await damage(database_url, statement.format(run=runs[1], binary=binary))
        which = RunFilter(tenant=TENANT)
        everything = export_together(bench.transactor, None, tenant=TENANT) if together else None
        lines, error = await kept_until_the_error(everything or export_all(bench.transactor, which))
        assert isinstance(error, Unreadable)
        assert error.run_id == runs[1]
        closed = {line["entity_id"] for line in lines if line["event_type"] == "journal_head"}
        assert closed & set(runs) == {runs[0], runs[2]}


async def test_a_run_that_is_deleted_while_its_log_is_read_gets_no_closing_line(
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The head of a run that is gone must not close a log that lacks its entries."""
    monkeypatch.setattr(log, "JOURNAL_PAGE", 1)

    async with on_a_bench(database_url) as bench:
        run_id = await bench.start(chain("three", 3))
        await bench.work_off()
        exported_lines = export_run(bench.transactor, run_id, tenant=TENANT)
        await anext(exported_lines)
        await bench.store.delete_runs(TENANT, [run_id])
        lines, error = await kept_until_the_error(exported_lines)
        assert isinstance(error, NotFound)
        assert "deleted while its log was read" in str(error)
        assert "journal_head" not in {line["event_type"] for line in lines}


async def test_what_does_not_exist_cannot_be_exported(tmp_path: Path) -> None:
    async with on_a_bench(f"sqlite:///{tmp_path}/stepkeep.db") as bench:
        run_id = await bench.start(chain("one", 1))
        with pytest.raises(NotFound, match="there is no run"):
            await exported(bench, "no-such-run")
        with pytest.raises(NotFound, match="there is no run"):
            [line async for line in export_run(bench.transactor, run_id, tenant="somebody else")]
        with pytest.raises(NotFound, match="there is no worker"):
            [line async for line in export_worker(bench.transactor, "nobody", tenant=TENANT)]


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("delete from journal where seq = (select max(seq) from journal)", Code.HEAD),
        ("delete from journal where seq = 2", Code.GAP),
        ("update journal set body = cast(replace(cast(body as text), 'bench:', 'wench:') as blob)", Code.HASH),
        ("update journal set hash = randomblob(32) where seq = 1", Code.HASH),
        ("update runs set head = randomblob(32)", Code.HEAD),
    ],
)
async def test_tampering_with_the_database_shows_in_the_export(tmp_path: Path, statement: str, found: Code) -> None:
    async with on_a_bench(f"sqlite:///{tmp_path}/stepkeep.db") as bench:
        run_id = await bench.start(chain("three", 3))
        await bench.work_off()
        connection = apsw.Connection(f"{tmp_path}/stepkeep.db")
        for [trigger] in connection.execute("select name from sqlite_schema where type = 'trigger'").fetchall():
            connection.execute(f"drop trigger {trigger}")  # the schema refuses to tamper; its owner need not
        connection.execute(statement)
        assert connection.changes() > 0
        connection.close()
        assert found in verdict(await exported(bench, run_id))


# -- line by line ----------------------------------------------------------------------------------------------------
def lines_of(world: World) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log_of(world)]


def test_each_line_has_the_fields_of_the_event_schema_in_order() -> None:
    """Seed 004, event schema."""
    for story in STORIES.values():
        for line in lines_of(story()):
            assert list(line) == [
                "timestamp", "event_type", "severity", "entity_id", "from_state", "to_state", "trigger", "metadata",
            ]  # fmt: skip


def test_severity_follows_the_seed() -> None:
    """Seed 004: a retry is a warning, a failed task an error, a failed workstream critical."""
    louder = {
        (line["metadata"].get("step", "run"), line["to_state"], line["severity"])
        for story in ("failure", "retry")
        for line in lines_of(STORIES[story]())
        if line["severity"] != "info"
    }
    assert louder == {
        ("d", "skipped", "warning"),
        ("a", "failed", "error"),
        ("run", "failed", "critical"),
        ("a", "retrying", "warning"),
        ("b", "validating", "warning"),
    }


def test_retries_are_counted_as_the_seed_counts_them() -> None:
    """Seed 004: going to retrying increments retry_count; the first execution has 0."""
    counts = [
        (line["to_state"], line["metadata"]["attempt"], line["metadata"]["retry_count"])
        for line in lines_of(STORIES["retry"]())
        if line["metadata"].get("step") == "a" and line["to_state"] in ("running", "retrying")
    ]
    assert counts[:4] == [("running", 1, 0), ("retrying", 1, 1), ("running", 2, 1), ("retrying", 2, 2)]


def test_durations_are_seconds_since_the_claim_and_times_are_exact() -> None:
    world = World(work("a"))
    world.claim("a")
    world.pass_time(1_234_567)
    world.finish("a")
    done = next(line for line in lines_of(world) if line["to_state"] == "succeeded" and "step" in line["metadata"])
    assert done["metadata"]["duration_seconds"] == 1.234567
    assert done["metadata"]["at"] == 1_001_234_567
    assert done["timestamp"] == "1970-01-01T00:16:41.234Z"


def test_a_transaction_with_several_causes_names_each_and_loses_none() -> None:
    world = World(work("a"), work("b"))
    world.send(world.claiming("a"), world.claiming("b", worker=2))
    mine = [line for line in lines_of(world) if line["metadata"].get("seq") == 2 and "hop" in line["metadata"]]
    assert [(line["metadata"]["cause"], line["metadata"]["actor"]) for line in mine] == [
        (0, "w1"),
        (0, "w1"),
        (1, "w2"),
    ]
    assert [line["metadata"]["hop"] for line in mine] == [0, 1, 2]
    assert {line["metadata"]["hops"] for line in mine} == {3}
    assert ["hash" in line["metadata"] for line in mine] == [False, False, True]


def test_the_same_journal_gives_the_same_bytes() -> None:
    assert log_of(STORIES["rollback"]()) == log_of(STORIES["rollback"]())


def test_damaged_bodies_are_named_and_not_glossed_over() -> None:
    for body in (b"", b"\xff", b"{}", b'{"tenant":"t"', b"[]"):
        with pytest.raises(InvariantBroken, match="entry 3 in the journal of r is unreadable"):
            unfold(SealedEntry("t", "r", 3, 1, body, b""))
    [true] = sealed([Entry("t", "r", 1, 1, (Cause("e", "a"),), (Hop(0, "t", "a", "b"),))])
    for body in (true.body + b" ", true.body[:-1] + b',"note":"added later"}', true.body.replace(b'"a"', b'"\\u0061"')):
        with pytest.raises(InvariantBroken, match="says more than an entry can say"):
            unfold(replace(true, body=body))
    stray = seal(Entry("t", "r", 3, 1, (Cause("e", "a"),), (Hop(0, "t", "a", "b", 7),)), GENESIS)
    with pytest.raises(InvariantBroken, match="a hop without a cause"):
        unfold(stray)


# -- nothing is lost -------------------------------------------------------------------------------------------------
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
causes = st.builds(Cause, words, words, st.none() | st.dictionaries(words, plain, min_size=1, max_size=3))
numbers = st.none() | st.integers(1, 2**40)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Any entry whatever, as long as its hops follow its causes in order; it need not make sense."""
    why = draw(st.lists(causes, min_size=1, max_size=4))
    by = sorted(draw(st.lists(st.integers(0, len(why) - 1), max_size=6)))
    hops = [
        Hop(
            draw(st.integers(0, 3)),
            draw(words),
            draw(words),
            draw(words),
            cause,
            draw(st.none() | st.integers(0, 3)),
            draw(numbers),
            draw(numbers),
            draw(st.none() | st.integers(0, 2**40)),
            draw(numbers),
            draw(st.none() | st.sampled_from(sorted(Category))),
            draw(st.none() | words),
            draw(st.none() | st.binary(max_size=9).map(lambda any_: hashlib.sha256(any_).hexdigest())),
        )
        for cause in by
    ]
    return Entry(draw(words), draw(words), 1, draw(st.integers(0, 2**50)), tuple(why), tuple(hops))


@drawn(50, 300, entries())
def test_the_judge_rebuilds_every_entry_byte_for_byte(entry: Entry) -> None:
    """The judge's own encoder and the engine's agree on any text, number and order: else a hash would differ."""
    names = {no: f"step-{no}" for no in range(4)}
    scribe = Scribe("run", entry.run_id, names, "c")
    scribe._state = "idle"
    [only] = sealed([entry])
    said: list[Code] = []
    journal = None
    for move in unfold(only):
        line = read_line(encode_line(scribe.line(move))).line
        assert line is not None
        if journal is None:
            journal = JudgedJournal(line, MACHINES)
            journal.history.number_of = {name: no for no, name in names.items()}.get  # type: ignore[method-assign]
        journal.take(line, lambda code, _: said.append(code))
    assert not set(said) & {Code.HASH, Code.ENTRY, Code.GAP}
    assert journal is not None
    assert journal._head == only.hash


# -- the definition --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dialect", [None, "ioa", "run", "linear", "action", "workstream"])
async def test_a_log_begins_with_the_definition_and_its_digest_is_checked(
    database_url: str, dialect: str | None
) -> None:
    async with on_a_bench(database_url) as bench:
        run_id = await bench.start(SIGNED, correlation_id="order-1")
        await bench.work_off()
        told = export_run(bench.transactor, run_id, tenant=TENANT, dialect=dialect)
        log = [encode_line(line) async for line in told]
        first = json.loads(log[0])
        assert first["event_type"] == "journal_definition"
        said = first["metadata"]
        assert (said["run_id"], said["tenant"], said["format"]) == (run_id, TENANT, "stepkeep-log/2")
        assert (said["written_in"], said["definition"]["name"]) == ("native", "signed")
        document = log[0].split(b'"definition":', 1)[1].split(b'},"hash"' if dialect else b"}}")[0]
        assert hashlib.sha256(document + b"}").hexdigest() == said["digest"]
        assert judged_as(dialect, log) == (set(), ())
        assert Code.DEFINITION in judged_as(dialect, [log[0].replace(b'"pack"', b'"back"'), *log[1:]])[0]
        assert Code.ORDER in judged_as(dialect, [log[0], *log[:3]])[0]
        assert Code.CONTRADICTION in judged_as(dialect, [log[0].replace(b'"native"', b'"ioa"', 1), *log[1:]])[0]


def judged_as(dialect: str | None, log: list[bytes]) -> tuple[set[Code], tuple[str, ...]]:
    report = verify_lines(log, MACHINES) if dialect is None else replay_lines(log, judged(dialect))
    return {finding.code for finding in report.findings}, report.notes


# -- stored inputs and outputs ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("statement", "value", "said"),
    [
        ("update run_details set input = ?", b'{"order":8}', "the input of the run does not have the digest"),
        ("update attempts set output = ?", b'"other"', "the output of step 'pack' does not have the digest"),
        ("update attempts set output = ?", None, "the output of step 'pack' is not stored"),
    ],
)
async def test_a_certificate_compares_stored_payloads_with_their_digests(
    tmp_path: Path, statement: str, value: bytes | None, said: str
) -> None:
    workflow = Workflow("packing")
    workflow.step("pack", packed)
    url = f"sqlite:///{tmp_path}/stepkeep.db"

    async with AsyncEngine(url) as engine:
        run = await engine.run(workflow, {"order": 7})
        first = await engine.certify(run.id)
        assert first.ok
        assert first.payloads is not None
        assert (first.payloads.compared, "2 of 2 have the digest" in first.page()) == (2, True)
        connection = apsw.Connection(f"{tmp_path}/stepkeep.db")
        for [trigger] in connection.execute("select name from sqlite_schema where type = 'trigger'").fetchall():
            connection.execute(f"drop trigger {trigger}")
        connection.execute(statement, (value,))
        connection.close()
        then = await engine.certify(run.id)
        assert not then.ok
        assert then.payloads is not None
        assert [finding.code for finding in then.payloads.findings] == [Code.PAYLOAD]
        assert said in then.payloads.findings[0].message
        assert said in then.page()


async def test_stored_payloads_have_their_digests_on_both_stores(database_url: str) -> None:
    workflow = Workflow("packing")
    workflow.step("pack", packed)

    async with AsyncEngine(database_url) as engine:
        run = await engine.run(workflow, {"order": 7})
        certificate = await engine.certify(run.id)
        assert certificate.ok, certificate.page()
        assert certificate.payloads is not None
        assert certificate.payloads.compared == 2


def packed(order: int) -> str:
    return f"packed {order}"
