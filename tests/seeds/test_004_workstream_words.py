"""A run in seed 004's own shapes: task files, DAG file, execution plan, transition log; the example, mode by mode."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.seeds.workstream import BROKEN, RULE, judged, on_floor, task, workstream

from stepkeep.cli.main import main
from stepkeep.definition.python.registry import Registry
from stepkeep.dialects.workstream.planning import critical_path, stages_of, topological_order
from stepkeep.dialects.workstream.words import WORDS
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.definition import Approval, Definition, Handler, StepDefinition
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.logs.log import export_run
from stepkeep.operations.people.people import decide_gate
from stepkeep.worker.settings import Settings

ROOT = Path(__file__).parent.parent.parent
NEEDS = {"build": [], "lint": ["build"], "ship": ["lint", "test"], "test": ["build"]}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/stepkeep.db"


# -- planning ----------------------------------------------------------------------------------------------------------
def test_the_order_and_the_stages_follow_from_the_dependencies() -> None:
    """pending → queued, actions: assign the task to an execution stage."""
    assert topological_order(NEEDS) == ["build", "lint", "test", "ship"]
    assert stages_of(NEEDS) == [["build"], ["lint", "test"], ["ship"]]
    assert (topological_order({}), stages_of({}), critical_path({}, {})) == ([], [], [])


def test_the_critical_path_is_the_longest_way() -> None:
    seconds = {"build": 5.0, "lint": 1.0, "test": 30.0, "ship": 2.0}
    assert critical_path(NEEDS, seconds) == ["build", "test", "ship"]
    assert critical_path(NEEDS, {**seconds, "lint": 60.0}) == ["build", "lint", "ship"]
    assert critical_path({"alone": [], "build": []}, {"alone": 9.0, "build": 1.0}) == ["alone"]


def test_ten_thousand_tasks_in_a_row_need_no_stack() -> None:
    needs = {f"t{number:05}": [f"t{number - 1:05}"] if number else [] for number in range(10_000)}
    assert len(stages_of(needs)) == 10_000
    assert len(critical_path(needs, dict.fromkeys(needs, 1.0))) == 10_000


# -- the shapes --------------------------------------------------------------------------------------------------------
async def test_a_run_is_shown_with_its_workstream_tasks_dag_and_plan(database_url: str) -> None:
    """planned → ready, actions: generate the DAG file, create the execution plan."""

    async with on_floor(database_url) as floor:
        await floor.start(
            workstream(
                task(
                    "build",
                    name="Build it",
                    type="lint",
                    max_retries=1,
                    timeout_seconds=20,
                    resource_requirements={"repo": "exclusive"},
                    schema_version="2.0",
                ),
                task("lint", "build", timeout_seconds=5),
                task("test", "build", timeout_seconds=60, critical=True, post=[RULE]),
                task("ship", "lint", "test", timeout_seconds=10),
                name="Nightly",
            )
        )
        await floor.do("build", BROKEN)
        await floor.pass_time(2)
        await floor.claim()
        shown = await floor.show()
        assert list(shown) == ["workstream", "tasks", "dag", "execution_plan"]
        stream = shown["workstream"]
        assert (stream["workstream_id"], stream["name"], stream["run_id"]) == ("ws-001", "Nightly", floor.run_id)
        assert (stream["status"], stream["derived_status"]) == ("executing", "executing")
        assert stream["tasks"] == ["build", "lint", "ship", "test"]
        build = shown["tasks"][0]
        assert build["execution"] == {
            "command": ["true"],
            "working_directory": None,
            "timeout_seconds": 20.0,
            "max_retries": 1,
            "retry_delay_seconds": 2.0,
        }
        assert (build["name"], build["type"], build["status"], build["blocks"]) == (
            "Build it", "lint", "running", ["lint", "test"],
        )  # fmt: skip
        assert (build["resource_requirements"], build["schema_version"]) == ({"repo": "exclusive"}, "2.0")
        assert build["worker_requirements"] == {"capabilities": [], "min_version": None}
        assert floor.bench.registered is not None
        state = build["state"]
        assert (state["assigned_worker"], state["retry_count"], state["last_error"]) == (
            floor.bench.registered.id, 1, "exit status 1",
        )  # fmt: skip
        assert state["created_at"] <= state["started_at"]
        assert state["completed_at"] is None
        assert shown["dag"] == {
            "workstream_id": "ws-001",
            "generated_at": stream["state"]["created_at"],
            "nodes": [
                {key: one[key] for key in ("task_id", "name", "type", "status")} for one in shown["tasks"]
            ],
            "edges": [
                {"from": "lint", "to": "build", "type": "depends_on"},
                {"from": "ship", "to": "lint", "type": "depends_on"},
                {"from": "ship", "to": "test", "type": "depends_on"},
                {"from": "test", "to": "build", "type": "depends_on"},
            ],
            "topological_order": ["build", "lint", "test", "ship"],
        }  # fmt: skip
        plan = shown["execution_plan"]
        assert plan["stages"][1] == {
            "stage": 2,
            "parallel_tasks": ["lint", "test"],
            "max_parallelism": 2,
            "estimated_duration_seconds": 60.0,
            "critical_path": ["test"],
            "resource_requirements": {},
        }
        assert plan["stages"][0]["resource_requirements"] == {"build": {"repo": "exclusive"}}
        assert (plan["total_estimated_duration"], plan["critical_path_duration"]) == (90.0, 90.0)
        assert plan["critical_path_tasks"] == ["build", "test", "ship"]


async def test_a_completed_task_counts_in_the_plan_with_the_time_it_took(url: str) -> None:
    async with on_floor(url) as floor:
        await floor.start(workstream(task("a", timeout_seconds=100), task("b", "a", timeout_seconds=7)))
        await floor.claim()
        floor.store.clock_offset += 3_000_000
        await floor.report("a")
        plan = (await floor.show())["execution_plan"]
        assert 3 <= plan["stages"][0]["estimated_duration_seconds"] < 50
        assert plan["stages"][1]["estimated_duration_seconds"] == 7


async def test_the_derived_state_is_shown_beside_the_engines_own(url: str) -> None:
    async with on_floor(url) as floor:
        await floor.start(workstream(task("a", max_retries=0, critical=True)))
        assert (await floor.show())["workstream"]["derived_status"] == "ready"
        await floor.do("a", BROKEN)
        stream = (await floor.show())["workstream"]
        assert (stream["status"], stream["derived_status"]) == ("failed", "failed")
        assert stream["state"]["last_error"] == "exit status 1"
        assert stream["state"]["started_at"] <= stream["state"]["completed_at"]


async def test_a_run_of_another_format_can_be_read_in_these_words(url: str) -> None:
    """Extensions: what the seed has no arrow for is marked, and its log is legal all the same."""

    async with on_floor(url) as floor:
        steps = (
            StepDefinition(name="ask", order=0, approval=Approval()),
            StepDefinition(name="go", order=1, executor=Handler(name="noop")),
        )
        await floor.start(Definition(name="native", version=1, steps=steps))
        await decide_gate(floor.transactor, floor.run_id, approve=True, caller=Caller("default", "ann"))
        await floor.do("go")
        shown = await floor.show()
        assert [(one["task_id"], one["status"], one["execution"]["command"]) for one in shown["tasks"]] == [
            ("ask", "completed", None),
            ("go", "completed", None),
        ]
        assert await floor.life("ask") == ["pending", "completed"]


def test_one_row_of_a_list_of_runs() -> None:
    run = {
        "id": "r-1", "workflow": "ws-001", "version": 2, "created_at": "c", "started_at": "s", "ended_at": None,
        "error": None,
    }  # fmt: skip
    assert WORDS.summary(run, "executing") == {
        "workstream_id": "ws-001", "run_id": "r-1", "version": 2, "status": "executing", "created_at": "c",
        "started_at": "s", "completed_at": None, "last_error": None,
    }  # fmt: skip


# -- the event schema --------------------------------------------------------------------------------------------------
async def test_every_line_of_the_log_has_the_seeds_schema(url: str) -> None:
    """Event Schema: eight fields, three nouns, four severities, UTC with milliseconds, duration and retry count."""

    async with on_floor(url) as floor:
        await floor.start(workstream(task("a", max_retries=1)))
        await floor.do("a", BROKEN)
        await floor.pass_time(2)
        await floor.do("a")
        lines = await floor.log()
        for line in lines:
            assert list(line) == [
                "timestamp", "event_type", "severity", "entity_id", "from_state", "to_state", "trigger", "metadata",
            ]  # fmt: skip
            assert len(line["timestamp"]) == len("2024-01-15T10:30:00.000Z")
            assert line["severity"] in {"info", "warning", "error", "critical"}
        assert {line["event_type"] for line in lines} == {
            "workstream_state_transition", "task_state_transition", "journal_definition", "journal_head",
        }  # fmt: skip
        done = next(line for line in lines if line["to_state"] == "completed" and "step" in line["metadata"])
        assert done["metadata"]["retry_count"] == 1
        assert done["metadata"]["duration_seconds"] >= 0
        assert [line["timestamp"] for line in lines] == sorted(line["timestamp"] for line in lines)


# -- the example -------------------------------------------------------------------------------------------------------
EXPECTED = {
    "success": ("completed", {"build": 0}, ["completed"] * 4),
    "retry": ("completed", {"build": 1}, ["completed"] * 4),
    "failure": ("failed", {"build": 0}, ["completed", "failed", "cancelled", "completed"]),
    "critical": ("failed", {"build": 1}, ["failed", "cancelled", "cancelled", "cancelled"]),
    "validation": ("failed", {"build": 0}, ["completed", None, "cancelled", "failed"]),
    "timeout": ("failed", {"build": 0}, ["completed", None, "cancelled", "failed"]),
}


@pytest.mark.parametrize("mode", EXPECTED)
async def test_the_example_does_what_it_says(url: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real programs on the real engine: success, retry, failure and its dependent, critical, rules, timeout."""
    monkeypatch.chdir(ROOT)

    async with AsyncEngine(url, registry=Registry()) as engine:
        quick = Settings(sweep_seconds=0.05, idle_poll_seconds=0.05)
        started = await engine.start("examples/workstream.yaml", {"mode": mode})

        async def ended() -> bool:
            return (await engine.result(started.run_id)).finished

        async with asyncio.timeout(60):
            await engine.worker(settings=quick).run_until(ended)
        exported = export_run(engine.transactor, started.run_id, tenant="default", dialect="workstream")
        shown, lines = (await engine.show(started.run_id, as_="workstream"), [line async for line in exported])
    status, retries, tasks = EXPECTED[mode]
    assert judged(lines) == []
    assert shown["workstream"]["status"] == status
    for one, expected in zip(shown["tasks"], tasks, strict=True):
        assert expected in (None, one["status"]), one
        assert one["state"]["retry_count"] == retries.get(one["task_id"], 0)
    json.dumps(shown)


def test_the_command_line_shows_a_run_in_these_words_and_verifies_its_log(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)

    def stepkeep(*arguments: str) -> str:
        assert main([*arguments, "--db", url]) == 0
        return capsys.readouterr().out

    run = json.loads(stepkeep("run", "examples/workstream.yaml", "--json"))["run"]["id"]
    shown = json.loads(stepkeep("show", run, "--as", "workstream", "--json"))
    assert {"workstream", "tasks", "dag", "execution_plan"} <= set(shown)
    assert shown["workstream"]["status"] == "completed"
    log = tmp_path / "transitions.jsonl"
    log.write_text(stepkeep("log", "export", run, "--as", "workstream"), encoding="utf-8")
    stepkeep("log", "verify", str(log), "--as", "workstream")
