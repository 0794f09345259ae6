"""Values of the wrong type are refused by every public function in words of our own, and change nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.definition.python.workflow import Workflow
from stepkeep.engine import AsyncEngine, Engine
from stepkeep.operations.access import OPERATIONS
from tests.suites import some


class Text(str):
    """A text that says odd things of itself."""

    __slots__ = ()

    def isprintable(self) -> bool:
        raise RuntimeError("asked")

    def __len__(self) -> int:
        return -1


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")


class Loud:
    def __repr__(self) -> str:
        raise RuntimeError("shown")

    __str__ = __repr__

    def __bool__(self) -> bool:
        raise RuntimeError("judged")


WRONG: list[Any] = [
    None,
    5,
    -1,
    10**5000,
    1.5,
    float("nan"),
    float("inf"),
    True,
    b"bytes",
    "",
    "x" * 5000,
    "a\x00b",
    "\ud800",
    "\x1b[2J",
    [],
    [5],
    ["x"],
    {},
    {"a": 1},
    {5: 6},
    {"x"},
    (1, 2),
    object(),
    object,
    len,
    Loud(),
    Unhashable(),
    Path("x"),
    Text("x"),
    range(3),
    ...,
    NotImplemented,
    ValueError("x"),
]

NOBODYS = "01a1e12c-57d6-75bf-abba-e99e88c4e41f"
ALLOWED = (sk.StepkeepError,)


def greet() -> str:
    return "hello"


def fresh() -> tuple[Workflow, Registry]:
    registry = Registry()
    registry.register(HandlerSpec(name="odd.greet", function=greet))
    made = sk.Workflow("odd", version=1, registry=registry)
    made.approval("only", deadline="1h")
    return made, registry


def refused(call: Callable[[], Any], what: str) -> bool:
    """Whether a call was refused; any error that is not ours, or has no words of ours, is a failure."""
    try:
        call()
    except ALLOWED as problem:
        said = str(problem)
    except BaseException as problem:  # noqa: BLE001 - that is the point
        pytest.fail(f"{what} raised {type(problem).__name__}: {ascii(problem.args)[:200]}")
    else:
        return False
    assert said, what
    assert "object at 0x" not in said, f"{what}: {said}"
    return True


def parameters(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            yield parameter


def calls(
    function: Callable[..., Any], good: dict[str, Any], more: tuple[str, ...] = ()
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """One call for each parameter and each wrong value; the other parameters have good values."""
    names = [*(parameter.name for parameter in parameters(function)), *more]
    positional = [p.name for p in parameters(function) if p.kind is inspect.Parameter.POSITIONAL_ONLY]
    for name in names:
        for number, value in enumerate(WRONG):
            given = {**good, name: value}

            def call(given: dict[str, Any] = given) -> Any:
                rest = dict(given)
                return function(*(rest.pop(each) for each in positional), **rest)

            yield f"{getattr(function, '__name__', '?')}({name}=WRONG[{number}])", call


LIFE = ("open", "close", "serve", "start_worker", "stop_workers")
METHODS = sorted(
    name
    for name, found in vars(AsyncEngine).items()
    if inspect.iscoroutinefunction(found) and not name.startswith("_") and name not in LIFE
)


@pytest.fixture
def bench(database_url: str) -> Iterator[tuple[Engine, Workflow, str]]:
    made, registry = fresh()
    with sk.open(database_url, registry=registry) as engine:
        run = engine.start(made, start_now=False).run_id
        yield engine, made, run


@pytest.mark.parametrize("name", METHODS)
def test_no_method_of_an_engine_fails_on_a_wrong_type(name: str, bench: tuple[Engine, Workflow, str]) -> None:
    engine, made, run = bench
    good: dict[str, dict[str, Any]] = {
        "publish": {"workflow": made},
        "start": {"workflow": made},
        "run": {"workflow": made},
        "runs": {},
        "prune": {"archive": None, "keep": 1_000_000, "dry_run": True},
        "approvals": {},
        "send": {"run_id": run, "name": "paid"},
        "complete": {"run_id": run, "step": "only", "token": "t"},
        "decide": {"run_id": run, "step": "only", "choice": "retry"},
        "reissue_token": {"run_id": run, "step": "only", "reason": "lost"},
        "quarantine": {"run_id": run, "reason": "why"},
        "sign_heads": {"signing_key": "absent.key"},
        "quarantined": {},
        "explain": {"what": run},
        "status": {},
        "statistics": {},
        "errors": {},
        "definitions": {},
        "compare_versions": {"workflow": "w", "old": 1, "new": 1},
        "unserved": {"workflow": "w"},
        "compare_runs": {"first": run, "second": run},
        "workers": {},
        "publish_schema": {"ref": "invoice/v1", "schema": {}},
        "schema": {"ref": "invoice/v1"},
        "schemas": {},
        "publish_policy": {"policy": {"policy": "p", "rules": []}},
        "policy_off": {},
        "show_policy": {},
        "release": {"run_id": run, "reason": "why"},
        "wait": {"run_id": run, "seconds": 0.01},
        "work_on": {"run_id": "01890000-0000-7000-8000-000000000001"},
    }

    def method(**given: Any) -> Any:
        return getattr(engine, name)(**given)

    method.__signature__ = inspect.signature(getattr(AsyncEngine, name))  # type: ignore[attr-defined]
    counted = 0
    for what, call in calls(method, good.get(name, {"run_id": run})):
        if name in ("start", "run", "wait", "rerun") and ("input=" in what or "seconds=" in what):
            continue  # whatever has a JSON form is an input; what has none is tried elsewhere
        refused(call, what)
        counted += 1
    assert counted or not list(parameters(method))
    for known in engine.runs()["runs"]:
        assert engine.show(known["id"])["run"]["id"] == known["id"], "a run was made that cannot be read"
    assert engine.show(run)["run"]["state"] in ("idle", "cancelled", "queued", "running", "ready", "blocked")


PEOPLE = sorted(name for name in OPERATIONS if "." in name and not name.startswith("work."))
"""Those of remote workers are reached over HTTP only, where the route matrix sends wrong bodies."""


@pytest.mark.parametrize("name", some(PEOPLE, 4))
def test_no_method_about_people_fails_on_a_wrong_type(name: str, tmp_path: Path) -> None:
    face, _, method = name.partition(".")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    good: dict[str, dict[str, Any]] = {
        "users.grant": {"name": "ann", "role": "r"},
        "users.revoke": {"name": "ann", "role": "r"},
        "users.delegate": {"delegator": "ann", "to": "bea", "valid_to": tomorrow},
        "users.undelegate": {"delegator": "ann", "to": "bea"},
        "tenants.set_vouching": {"name": "acme", "vouching": "allowed"},
        "keys.create": {"owner": "ann", "scopes": ["read"]},
        "keys.rotate": {"key_id": "0" * 16},
        "keys.revoke": {"key_id": "0" * 16},
        "audit.list": {},
        "tenants.quotas": {"name": "default"},
        "tenants.signing": {"name": "default"},
        "tenants.set_signing": {"name": "default", "secrets": ["HOOK"]},
        "tenants.set_quotas": {"name": "default", "max_concurrent_runs": 5},
        "jobs.list": {},
        "jobs.start": {"action": "cancel", "where": {"workflow": "none"}},
        **{one: {"job_id": "j"} for one in ("jobs.show", "jobs.runs", "jobs.stop")},
        "continuations.retry": {"run_id": NOBODYS},
        "migrations.migrate": {"run_id": NOBODYS, "to": 2},
        "migrations.preview": {"run_id": NOBODYS, "to": 2},
        "migrations.migrate_all": {"workflow": "nothing", "to": 2},
        "migrations.preview_all": {"workflow": "nothing", "to": 2},
        "continuations.preview": {"run_id": NOBODYS, "how": "retry"},
        "continuations.rerun": {"run_id": NOBODYS, "start": "s"},
        "continuations.fork": {"run_id": NOBODYS, "start": "s"},
        "interventions.request_changes": {"run_id": NOBODYS, "comment": "why"},
        "interventions.escalate": {"run_id": NOBODYS, "reason": "why"},
        "interventions.reassign": {"run_id": NOBODYS, "step": "s", "fail": True, "reason": "why"},
        "interventions.annotate": {"run_id": NOBODYS, "note": "why"},
        "interventions.freeze": {"run_id": NOBODYS, "reason": "why"},
        "versions.withdraw": {"workflow": "none", "version": 1, "reason": "why"},
        "versions.restore": {"workflow": "none", "version": 1},
        "mailbox.drop": {"key": "order-1"},
        "mailbox.list": {},
        "conversations.save": {"conversation": "ada", "items": [{"key": "a", "value": 1}]},
        "conversations.read": {"conversation": "ada"},
        "conversations.remove": {"conversation": "ada", "prefixes": ["a"]},
        "conversations.delete": {"conversation": "ada"},
        "conversations.prune": {"before": tomorrow},
        "conversations.list": {},
        "triggers.list": {},
        "triggers.emit": {"event": "paid"},
        "triggers.add": {"name": "ann", "workflow": "none"},
        "triggers.stop_backfill": {"name": "ann", "backfill": "b"},
        "triggers.backfill": {"name": "ann", "since": tomorrow, "until": tomorrow},
        **{
            one: {}
            for one in (
                "users.list",
                "users.delegations",
                "tenants.list",
                "keys.list",
                "network.list",
                "pauses.list",
                "slots.list",
                "resources.list",
            )
        },
        **{one: {"queue": ""} for one in ("pauses.pause_queue", "pauses.resume_queue")},
        **{one: {"workflow": "none"} for one in ("pauses.pause_workflow", "pauses.resume_workflow")},
        "slots.set": {"most": 3},
        "slots.clear": {},
        "resources.set": {"resource": "cpu", "most": 3},
        "resources.clear": {"resource": "cpu"},
        **{one: {} for one in ("pauses.pause_tenant", "pauses.resume_tenant")},
        "hooks.list": {},
        "hooks.add": {"document": {"hook": "h", "scheme": "github", "secrets": ["A"], "start": {"workflow": "w"}}},
        "hooks.receive": {"name": "h", "headers": {}, "body": b"{}"},
        "hooks.test": {"name": "h", "headers": {}, "body": "{}"},
        **{one: {"host": "10.0.0.0/8"} for one in ("network.allow", "network.remove")},
        "sinks.add": {"name": "a", "kind": "host"},
        "sinks.replace": {"name": "a", "kind": "host"},
        "sinks.test": {"name": "a"},
        "outbox.show": {"run_id": NOBODYS, "sink": "a"},
        "outbox.redrive": {"sink": "a", "reason": "why"},
        "outbox.drop": {"run_id": NOBODYS, "sink": "a", "event": "e", "reason": "why"},
        "outbox.take": {"sink": "a"},
        "outbox.ack": {"taken": None},
        "outbox.fail": {"taken": None, "error": "why"},
        **{one: {} for one in ("sinks.list", "outbox.list", "outbox.status", "outbox.history")},
    }
    with sk.open(f"sqlite:///{tmp_path}/s.db") as engine:
        for person in ("ann", "bea"):
            engine.users.create(person)

        def call(**given: Any) -> Any:
            return getattr(getattr(engine, face), method)(**given)

        call.__signature__ = inspect.signature(getattr(getattr(engine, face), method))  # type: ignore[attr-defined]
        for what, one in calls(call, good.get(name, {"name": "ann"})):
            refused(one, what)
        assert engine.users.history().chain.is_intact


def test_waiting_takes_numbers_of_seconds_and_nothing_else(bench: tuple[Engine, Workflow, str]) -> None:
    engine, _, run = bench
    for value in ("5", True, float("nan"), [], object(), b"1"):
        with pytest.raises(sk.InvalidInput, match="a number"):
            engine.wait(run, seconds=value)
    for value in (0, 0.01):
        assert engine.wait(run, seconds=value).state == "idle"


def test_a_subclass_of_text_is_a_text(bench: tuple[Engine, Workflow, str]) -> None:
    engine, made, _ = bench
    started = engine.start(
        made,
        idempotency_key=Text("key"),
        business_key=Text("business"),
        correlation_id=Text("about"),
        labels={Text("name"): Text("label")},
        start_now=False,
    )
    assert engine.runs(business_key=Text("business"))["runs"][0]["id"] == started.run_id
    assert engine.show(Text(started.run_id))["run"]["business_key"] == "business"
    engine.cancel(started.run_id, reason=Text("why"))


def test_an_engine_is_opened_by_a_path_and_by_nothing_that_is_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sk.open(tmp_path / "by-path.db") as engine:
        assert engine.runs()["runs"] == []
    assert (tmp_path / "by-path.db").exists()
    monkeypatch.chdir(tmp_path)
    for number, value in enumerate(WRONG):
        for name in ("url", "tenant", "actor", "registry", "wait_for_database", "dev"):
            refused(
                lambda name=name, value=value: AsyncEngine(**{"url": "sqlite:///x.db", name: value}), f"{name} {number}"
            )


@pytest.mark.parametrize(
    ("function", "good", "more"),
    [
        (sk.Retry, {}, ()),
        (sk.fail, {"error": "no"}, ()),
        (sk.retry_in, {"delay": "1s"}, ()),
        (sk.wait_for, {"event": "paid"}, ()),
        (sk.StepError, {"error": "no"}, ()),
        (sk.load_file, {"path": "x.yaml"}, ()),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_no_function_for_handlers_fails_on_a_wrong_type(
    function: Callable[..., Any],
    good: dict[str, Any],
    more: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    counted = [refused(call, what) for what, call in calls(function, good, more)]
    assert any(counted)


def test_no_decorator_fails_on_a_wrong_type() -> None:
    for number, value in enumerate(WRONG):
        for name in (
            "retry",
            "timeout",
            "undo",
            "mode",
            "effect",
            "transactional",
            "capabilities",
            "queue",
            "registry",
        ):
            options = {"registry": Registry(), name: value}
            refused(
                lambda options=options: sk.step("odd.name", **options)(lambda: None), f"step({name}=WRONG[{number}])"
            )
        refused(lambda value=value: sk.step(value, registry=Registry()), f"step(WRONG[{number}])")
        refused(lambda value=value: sk.step("a", registry=Registry())(value), f"step()(WRONG[{number}])")
        for name in ("retry", "timeout", "mode", "registry"):
            options = {"registry": Registry(), name: value}
            refused(lambda options=options: sk.agent("odd", **options)(lambda: None), f"agent({name}=WRONG[{number}])")
        refused(lambda value=value: sk.agent(value, registry=Registry())(lambda: None), f"agent(WRONG[{number}])")


STEP_OPTIONS = (
    *("after", "if_", "on_failure", "order", "description", "timeout", "retry", "undo", "effect", "compensate_when"),
    *("rules", "completion", "capabilities", "queue", "inputs"),
)


@pytest.mark.parametrize("kind", some(["step", "agent", "command", "http", "approval", "wait"], 3))
def test_no_step_of_a_workflow_fails_on_a_wrong_type(kind: str) -> None:
    good: dict[str, dict[str, Any]] = {
        "step": {"name": "a", "handler": "odd.greet"},
        "agent": {"name": "a", "agent": "x", "action": "do"},
        "command": {"name": "a", "argv": ["true"]},
        "http": {"name": "a", "url": "http://example.com"},
        "approval": {"name": "a"},
        "wait": {"name": "a", "event": "paid"},
    }
    method = getattr(Workflow, kind)
    for what, _ in calls(method, good[kind], STEP_OPTIONS):
        name = what.partition("(")[2].partition("=")[0]
        value = WRONG[int(what.partition("[")[2].rstrip("])"))]

        def made(name: str = name, value: Any = value) -> Any:
            registry = Registry()
            workflow = Workflow("w", registry=registry)
            given = {**good[kind], name: value}
            positional = [p.name for p in parameters(method) if p.kind is inspect.Parameter.POSITIONAL_ONLY]
            getattr(workflow, kind)(*(given.pop(each) for each in positional), **given)
            return workflow.definition()

        refused(made, what)


def test_no_workflow_fails_on_a_wrong_type() -> None:
    for what, call in calls(Workflow, {"name": "w"}):
        refused(lambda call=call: _with_a_step(call()), what)


def _with_a_step(workflow: Workflow) -> Any:
    workflow.step("only", "odd.greet")
    return workflow.definition()
