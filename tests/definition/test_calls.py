"""A call of a flow means the same after its way to the service, which does not know the handlers of the worker."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import stepkeep as sk
from stepkeep.definition.python.calls import digest_of, read_call, written_call
from stepkeep.definition.python.registry import Registry
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.outcomes import NewCall
from stepkeep.worker.flows.calls import Templates

HANDLERS = Registry()


@sk.step(
    "calls.undo", registry=HANDLERS, timeout="7s", retry=sk.Retry(max_attempts=9), queue="slow", capabilities=["a"]
)
def undo(n: int) -> None: ...


@sk.step("calls.bare", registry=HANDLERS)
def bare(n: int) -> None: ...


@sk.step(
    "calls.rich",
    registry=HANDLERS,
    undo=undo,
    timeout="1m1s",
    retry=sk.Retry(max_attempts=7, initial="250ms", max="3s", jitter=0.25, on=["timeout", "external"]),
    effect="irreversible",
    capabilities=["gpu", "b"],
    queue="night",
)
def rich(n: int) -> None: ...


@sk.step("calls.read", registry=HANDLERS, effect="read", retry=sk.Retry(max_elapsed="1h"))
def read(n: int) -> None: ...


OPTIONS: list[dict[str, Any]] = [
    {},
    {"timeout": "3s"},
    {"timeout": timedelta(milliseconds=1500)},
    {"retry": sk.Retry(max_attempts=2)},
    {"retry": {"max_elapsed": "2h"}},
    {"undo": undo},
    {"undo": {"uses": "calls.undo", "with": {"n": 1}, "timeout": "9s"}},
    {"undo": {"command": ["true"]}},
    {"undo": "other.undo", "compensate_when": "attempted"},
    {"effect": "write", "capabilities": ["c"], "queue": "day"},
    {"post": ["output > 1"], "description": "a call"},
    {"on_exhausted": "hold", "hold": {"prompt": "Sure?", "roles": ["boss"]}},
    {"output_schema": {"type": "integer"}},
]
WAITS: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    ("sleep", "sleep", ("2d",), {}),
    ("sleep", "sleep", (timedelta(seconds=1.5),), {}),
    ("sleep", "sleep", (), {"until": datetime(2030, 1, 1, tzinfo=UTC)}),
    ("wait_for", "wait", ("paid",), {}),
    ("wait_for", "wait", ("paid",), {"deadline": "1h", "where": "message.cents > 1", "count": 3}),
    ("wait_for", "wait", ("paid",), {"until": "size(messages) > 1"}),
    ("gate", "approval", (), {"prompt": "Send it?"}),
    (
        "gate",
        "approval",
        (),
        {"roles": ["a"], "quorum": 2, "not_": ["requester"], "deadline": "1d", "on_deadline": "skip"},
    ),
    ("child", "workflow", ("other",), {}),
    ("child", "workflow", ("other",), {"version": 3, "deadline": "1h", "undo": undo}),
    ("child", "workflow", ("other",), {"detached": True}),
    ("child", "workflow", ("other",), {"effect": "read"}),
]


def same(kind: str, template: Any, arguments: bytes = b"{}", digest: str | None = None) -> None:
    """The service reads the template that the worker has."""
    written = written_call(template, HANDLERS)
    sent = NewCall(kind=kind, name="x", digest=digest or digest_of(arguments), arguments=arguments, step=written)
    found = read_call(sent, "order").template
    assert (found.step, found.queue, found.undo_queue) == (template.step, template.queue, template.undo_queue)
    assert found.child == template.child


def shown(value: object) -> str:
    """A name for a case that is the same in every process: functions are shown with their address otherwise."""
    return re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", str(value))


@pytest.mark.parametrize("handler", ["calls.bare", "calls.rich", "calls.read", "calls.unknown"])
@pytest.mark.parametrize("options", OPTIONS, ids=shown)
def test_a_call_of_a_handler_has_the_template_of_a_worker_with_the_database(
    handler: Any, options: dict[str, Any]
) -> None:
    same("step", Templates(HANDLERS).of_handler("order", handler, options))


@pytest.mark.parametrize(("kind", "method", "given", "options"), WAITS, ids=shown)
def test_a_call_that_no_worker_runs_has_the_same_template(
    kind: str, method: str, given: tuple[Any, ...], options: dict[str, Any]
) -> None:
    template = Templates(HANDLERS).of_wait("order", method, given, options)
    if kind == "child":
        said = {key: value for key, value in options.items() if key in ("version", "detached")}
        recognised = {**said, "deadline": options.get("deadline"), "input": {}}
        same(kind, template, digest=digest_of(msgspec.json.encode(recognised)))
    else:
        same(kind, template)


def test_a_template_counts_for_the_kind_that_is_said() -> None:
    written = written_call(Templates(HANDLERS).of_wait("order", "sleep", ("2d",), {}), HANDLERS)
    call = NewCall(kind="step", name="x", digest=digest_of(b"{}"), arguments=b"{}", step=written)
    with pytest.raises(InvalidInput, match="the key `uses`"):
        read_call(call, "order")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"map": "${{ input.items }}"}, "ctx.map"),
    ({"repeat": {"max": 3, "until": "last > 3"}}, "a loop"),
    ({"flow": {"max_calls": 3}}, "ctx.child"),
    ({"then": {"max_steps": 3}}, "further calls"),
    ({"resources": {"gpu": 1}}, "a step of a definition"),
]


@pytest.mark.parametrize("option", ["if_", "inputs", "after", "order", "on_failure", "hooks"])
def test_an_option_that_means_nothing_for_a_call_is_refused(option: str) -> None:
    """These were accepted and did nothing."""
    with pytest.raises(sk.StepError, match=f"a call has no `{option}`"):
        Templates(HANDLERS).of_handler("order", "calls.bare", {option: "anything"})
    with pytest.raises(sk.StepError, match=f"a call has no `{option}`"):
        Templates(HANDLERS).of_wait("order", "workflow", ("other",), {option: "anything"})


def test_the_service_takes_no_condition_of_a_call() -> None:
    step = msgspec.json.encode({"uses": "calls.bare", "if": "input.x"}).decode()
    with pytest.raises(InvalidInput, match="Write the condition in the flow"):
        read_call(NewCall(kind="step", name="x", digest=digest_of(b"{}"), arguments=b"{}", step=step), "order")


@pytest.mark.parametrize(("options", "instead"), REFUSED, ids=shown)
def test_a_call_that_would_own_steps_or_resources_is_refused_here_and_there(
    options: dict[str, Any], instead: str
) -> None:
    """Such an option did nothing, and the judge refused the record of the run."""
    with pytest.raises(sk.StepError, match=instead):
        Templates(HANDLERS).of_handler("order", "calls.bare", options)
    step = msgspec.json.encode({"uses": "calls.bare", **options}).decode()
    with pytest.raises(InvalidInput, match=instead):
        read_call(NewCall(kind="step", name="x", digest=digest_of(b"{}"), arguments=b"{}", step=step), "order")
