"""A workflow means the same however it is published: from Python, from a file, by the command line, through a service.

What the decorators of its handlers say is part of it, or the publication is refused with the reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

import stepkeep as sk
from stepkeep.definition.native import advice
from stepkeep.definition.python.registry import Registry, default_registry
from stepkeep.kernel.errors import DefinitionError
from tests.service import TENANT, make_key, serving

APP = """
import stepkeep as sk

LEDGER = []

@sk.step("saga.refund", retry=sk.Retry(max_attempts=4, max=None), timeout="20s")
def refund(charged):
    LEDGER.append("refund")

@sk.step("saga.charge", undo=refund, retry=sk.Retry(max_attempts=7, on=["transient"]), timeout="10s", queue="money")
def charge():
    LEDGER.append("charge")
    return {"charged": 1}

@sk.step("saga.ship", retry=sk.Retry(max_attempts=1), capabilities=["lorry"])
def ship():
    raise RuntimeError("no lorry")
"""
SAGA = """
workflow: saga
on_failure: compensate
timeout: 1h
steps:
  - {name: pay, uses: saga.charge, with: {}}
  - {name: ship, uses: saga.ship, with: {}}
"""


@pytest.fixture
def app(tmp_path: Path) -> dict[str, Any]:
    """The handlers, as a program that imports them has them."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "saga.yaml").write_text(SAGA)
    names: dict[str, Any] = {"__name__": "saga_app"}
    exec(compile(APP, "app.py", "exec"), names)
    return names


def in_python() -> sk.Workflow:
    saga = sk.Workflow("saga", on_failure="compensate", timeout="1h")
    saga.step("pay", "saga.charge", inputs={})
    saga.step("ship", "saga.ship", inputs={})
    return saga


def stepkeep(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stepkeep", *args], cwd=cwd, capture_output=True, text=True, timeout=60
    )


def post(address: str, key: str, body: str | dict[str, Any]) -> httpx.Response:
    """Publish over HTTP: a definition as YAML, or one with what the decorators say as JSON."""
    text, kind = (body, "yaml") if isinstance(body, str) else (json.dumps(body), "json")
    headers = {"Authorization": f"Bearer {key}", "Content-Type": f"application/{kind}"}
    return httpx.post(f"{address}/workflows", content=text, headers=headers)


WRITTEN_OUT = """
workflow: saga
on_failure: compensate
timeout: 1h
steps:
  - name: pay
    uses: saga.charge
    with: {}
    undo: {uses: saga.refund, retry: {max_attempts: 4, max: null}, timeout: 20s}
    retry: {max_attempts: 7, on: [transient]}
    timeout: 10s
    queue: money
  - {name: ship, uses: saga.ship, with: {}, retry: {max_attempts: 1}, capabilities: [lorry]}
"""
"""The same, where the file says everything itself: nothing is left to decorators."""
DECLARED = {
    "saga.charge": {
        "undo": "saga.refund",
        "retry": {"max_attempts": 7, "on": ["transient"]},
        "timeout": "10s",
        "queue": "money",
    },
    "saga.refund": {"retry": {"max_attempts": 4, "max": None}, "timeout": "20s"},
    "saga.ship": {"retry": {"max_attempts": 1}, "capabilities": ["lorry"]},
}
"""What the decorators say, as the documentation has a caller of the service write it."""

WAYS = ("python", "file", "client", "client-file", "with --app", "without --app", "http", "http of a host")


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_publish_charges_refunds_and_has_one_digest(
    database_url: str, tmp_path: Path, app: dict[str, Any], way: str
) -> None:
    file = tmp_path / "saga.yaml"
    with serving(database_url, Registry() if way == "http" else default_registry) as address:
        key = make_key(database_url, "ann")
        with (
            sk.open(database_url, tenant=TENANT, actor="root") as engine,
            sk.open(address, key=key) as client,
        ):
            match way:
                case "python":
                    engine.publish(in_python())
                case "file":
                    engine.publish(str(file))
                case "client":
                    client.publish(in_python())
                case "client-file":
                    client.publish(str(file))
                case "with --app" | "without --app":
                    given = ("--app", "app.py") if way == "with --app" else ("--handlers-elsewhere",)
                    (tmp_path / "saga.yaml").write_text(SAGA if way == "with --app" else WRITTEN_OUT)
                    told = stepkeep(
                        "publish", "saga.yaml", *given, "--db", database_url, "--tenant", TENANT, cwd=tmp_path
                    )
                    assert told.returncode == 0, told.stderr
                case _:
                    # The service of a program that has the handlers asks their decorators itself.
                    sent = post(address, key, {"definition": SAGA, "handlers": DECLARED} if way == "http" else SAGA)
                    assert sent.status_code == 201, sent.text
            [version] = engine.definitions(name="saga")["definitions"]
            assert version["digest"] == engine.publish(in_python()).digest
            engine.start_worker(capabilities=["lorry"])
            done = engine.wait(engine.start("saga").run_id, seconds=60)
    assert (done.state, app["LEDGER"]) == ("rolled_back", ["charge", "refund"])


def test_a_file_whose_handlers_are_not_known_is_refused_by_every_way_that_has_decorators(
    database_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "saga.yaml"
    file.write_text(SAGA)
    with serving(database_url, default_registry) as address:
        key = make_key(database_url, "ann")
        with (
            sk.open(database_url, tenant=TENANT, actor="root") as engine,
            sk.open(address, key=key) as client,
        ):
            for opened in (engine, client):
                with pytest.raises(DefinitionError, match=r"There is no handler `saga\.charge`"):
                    opened.publish(str(file))
            for command in ("publish", "start"):
                told = stepkeep(command, "saga.yaml", "--db", database_url, "--tenant", TENANT, cwd=tmp_path)
                assert told.returncode == 2
                assert "There is no handler `saga.charge`" in told.stderr
                assert "--handlers-elsewhere" in told.stderr
            assert engine.definitions(name="saga")["definitions"] == []


def test_a_client_hands_on_the_advice_of_the_service(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    advice._warn_once.cache_clear()  # each piece of advice is logged once by a process
    saga = sk.Workflow("nothing-to-undo", on_failure="compensate")
    saga.step("pay", "saga.elsewhere", inputs={})
    with (
        serving(database_url, default_registry) as address,
        sk.open(address, key=make_key(database_url, "ann")) as client,
    ):
        published = client.publish(saga)
    assert any("has nothing to take back" in problem.message for problem in published.warnings)
    assert "has nothing to take back" in caplog.text


def test_agents_are_declared_beside_handlers_of_the_same_name(database_url: str, app: dict[str, Any]) -> None:
    @sk.agent("saga.charge", retry=sk.Retry(max_attempts=9))
    def asked(action: str) -> None: ...

    flow = sk.Workflow("agents")
    flow.agent("ask", "saga.charge", "charge it")
    flow.agent("far", "saga.agent-elsewhere", "charge it")
    flow.step("pay", "saga.charge", inputs={}, undo="saga.undo-elsewhere")
    with (
        serving(database_url, Registry()) as address,
        sk.open(database_url, tenant=TENANT, actor="root") as engine,
        sk.open(address, key=make_key(database_url, "ann")) as client,
    ):
        published = client.publish(flow)
        plan = engine.publish("agents")
        assert published.digest == plan.digest == engine.publish(flow).digest
    assert [step.retry.max_attempts for step in plan.definition.steps] == [9, 3, 7]


def test_a_step_that_a_rollback_would_leave_behind_is_refused_where_nothing_is_known_of_its_handler(
    database_url: str, tmp_path: Path
) -> None:
    """Its decorator may have the undo. What the step itself says is enough."""
    flow = in_python()
    with (
        serving(database_url, Registry()) as address,
        sk.open(database_url, tenant=TENANT, actor="root") as engine,
        sk.open(address, key=make_key(database_url, "ann")) as client,
    ):
        for refused in (engine.publish, client.publish, engine.start, client.start):
            with pytest.raises(DefinitionError, match=r"Nothing is known here of the handler `saga\.charge`.*pay"):
                refused(flow)
        key = make_key(database_url, "ann")
        sent = post(address, key, SAGA)
        assert (sent.status_code, sent.json()["code"]) == (422, "definition")
        assert "Nothing is known here of the handler `saga.charge`" in sent.text
        sent = post(address, key, WRITTEN_OUT)
        assert sent.status_code == 201
        [ship] = [one for one in sent.json()["warnings"] if "Nothing is known" in one["message"]]
        assert "`saga.ship`" in ship["message"]
        assert engine.definitions(name="saga")["definitions"][0]["version"] == 1


def test_a_client_checks_here_and_points_at_the_lines_of_the_caller(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("workflow: wrong\nsteps:\n  - {name: a, uses: saga.nowhere}\n")
    flow = sk.Workflow("advised")
    paid = flow.step("pay", "saga.elsewhere", inputs={}, if_="1 < 2")
    flow.step("ship", "saga.elsewhere", inputs={}, after=paid)
    with (
        serving(database_url, Registry()) as address,
        sk.open(address, key=make_key(database_url, "ann")) as client,
    ):
        with pytest.raises(DefinitionError) as wrong:
            client.publish(str(tmp_path / "wrong.yaml"))
        assert (wrong.value.problems[0].file, wrong.value.problems[0].line) == (str(tmp_path / "wrong.yaml"), 3)
        warnings = client.publish(flow).warnings
    assert {Path(problem.file).name for problem in warnings} == {"test_one_meaning.py"}
    [skipped] = [problem for problem in warnings if "skipped too" in problem.message]
    assert '.allow("skipped")' in skipped.hint


def test_an_unchanged_workflow_costs_a_client_one_request_for_each_start(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = sk.Workflow("twice")
    flow.step("pay", "saga.elsewhere", inputs={})
    with (
        serving(database_url, Registry()) as address,
        sk.open(address, key=make_key(database_url, "ann")) as client,
    ):
        client.start(flow)
        monkeypatch.setattr("stepkeep.definition.python.workflow.examine", None)
        monkeypatch.setattr("stepkeep.client.async_client.AsyncClient.publish", None)
        assert client.start(flow).created


@pytest.mark.parametrize(
    ("handlers", "says"),
    [
        ({"saga.charge": {"undo": 7}}, "saga.charge.undo"),
        ({"saga.charge": {"retry": {"max_attempts": 0}}}, "max_attempts"),
        ({"saga.charge": {"timeout": "9000d"}}, "timeout"),
        ({"saga.charge": {"shell": "rm"}}, "shell"),
        ({"saga.charge": {"kind": "agent"}}, "kind"),
        ({"no name!": {}}, "handlers"),
        ([], "mapping"),
        ({"saga.charge": {}}, "There is no handler `saga.ship`"),
    ],
)
def test_declared_handlers_are_checked_like_a_definition(database_url: str, handlers: Any, says: str) -> None:
    with serving(database_url, default_registry) as address:
        sent = post(address, make_key(database_url, "ann"), {"definition": SAGA, "handlers": handlers})
    assert sent.status_code in (400, 422), sent.text
    assert says in sent.text


def test_an_unchanged_workflow_is_checked_and_published_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saga = sk.Workflow("twice")
    saga.step("pay", "saga.elsewhere", inputs={})
    with sk.open(database_url) as engine:
        first = engine.publish(saga)
        monkeypatch.setattr("stepkeep.definition.python.workflow.examine", None)
        monkeypatch.setattr("stepkeep.engine.definitions.publish", None)
        assert engine.publish(saga) is first
        assert engine.start(saga).created
        monkeypatch.undo()
        saga.step("ship", "saga.elsewhere", inputs={})
        with pytest.raises(sk.Conflict):
            engine.publish(saga)


def test_the_yaml_of_the_readme_runs_on_the_handlers_that_it_names(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    text = (root / "README.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "onboarding.yaml").write_text(text)
    given = ("--app", str(root / "examples" / "handlers.py"), "--db", "sqlite:///readme.db", "--json")
    begun = stepkeep("run", "onboarding.yaml", *given, "--input", '{"email": "a@example.com"}', cwd=tmp_path)
    run = json.loads(begun.stdout)["run"]["id"]
    assert stepkeep("approve", run, "sign-off", "--db", "sqlite:///readme.db", cwd=tmp_path).returncode == 0
    done = stepkeep("run", "--resume", run, *given, cwd=tmp_path)
    states = {step["name"]: step["state"] for step in json.loads(done.stdout)["steps"]}
    assert states == {"create-account": "succeeded", "sign-off": "succeeded", "send-welcome": "succeeded"}
