"""Events are what their types say before they are recorded, and rows can be held to theirs after they were read."""

from __future__ import annotations

from typing import Any

import pytest

from stepkeep.kernel.machine.events import (
    CancelRequested,
    CompletionSignalled,
    Event,
    GateDecided,
    ManualOutcome,
    MessageArrived,
    PauseRequested,
    RunStarted,
    StepClaimed,
    StepReported,
    TimeCame,
    UnpauseRequested,
)
from stepkeep.kernel.machine.fitting import MAX_OUTCOME_BYTES, event_bytes, misfit_of_event, misfit_of_row
from stepkeep.kernel.machine.outcomes import (
    Completed,
    Emitted,
    Failed,
    Outcome,
    Released,
    RulesFailed,
    RulesPassed,
    Stopped,
    TimedOut,
    Waiting,
)
from stepkeep.kernel.machine.rows import Attempt, Note, Run, Step
from stepkeep.kernel.machine.states import AttemptState, Category

WHO: dict[str, Any] = {"tenant": "default", "run_id": "r1", "actor": "tests"}


def report(outcome: Any, **fields: Any) -> StepReported:
    return StepReported(**{**WHO, "no": 0, "fence": 1, "worker": 1, "outcome": outcome, **fields})


def manual(**fields: Any) -> CompletionSignalled:
    return CompletionSignalled(**{**WHO, "no": 0, "token": "t", "outcome": ManualOutcome.FAILED, **fields})


@pytest.mark.parametrize(
    "event",
    [
        RunStarted(**WHO),
        StepClaimed(**WHO, no=0, worker=1, lease=30_000_000),
        StepClaimed(**WHO, no=0, worker=1, lease=30_000_000, queues=frozenset({1, 2})),
        TimeCame(**WHO),
        TimeCame(**WHO, no=3),
        GateDecided(**WHO, approve=True, comment="fine,\nreally ☃"),
        manual(output=b'{"a":1}', notes="n", evidence=("a", "b"), claim=b"null"),
        MessageArrived(**WHO, id="m1", name="paid", payload=b"1"),
        CancelRequested(**WHO, reason=""),
        PauseRequested(**WHO, reason="closed"),
        UnpauseRequested(**WHO),
        report(Completed(output=b"null")),
        report(Completed(output=None, token="x", cost=b'{"usd":1}', emit=(Emitted("told", b"1"),))),
        report(Waiting(event="paid", timeout=1_000_000)),
        report(Failed(category=Category.AUTH, error="no", delay=0, final=True)),
        report(TimedOut()),
        report(Released()),
        report(Stopped()),
        report(RulesPassed()),
        report(RulesFailed(error="broken")),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_the_engine_makes_itself_fits(event: Event) -> None:
    assert misfit_of_event(event) is None


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (report(Waiting(event=5)), "outcome event must be text, not int"),
        (report(Waiting(event="")), "outcome event must have 1 to 255 printable characters"),
        (report(Waiting(event="a\x00b")), "outcome event must have 1 to 255 printable characters"),
        (report(Waiting(event="x" * 100_000)), "outcome event must have 1 to 255 printable characters"),
        (report(Waiting(event="paid", timeout=10**30)), "outcome timeout is a number of more than 64 bits"),
        (report(Waiting(event="paid", timeout=2**62)), "outcome timeout must be a time from 0 to 3,650 days"),
        (report(Waiting(event="paid", timeout="2d")), "outcome timeout must be a whole number, not str"),
        (report(Waiting(event="paid", takes_timeouts=1)), "outcome takes_timeouts must be true or false, not int"),
        (report(Completed(output="null")), "output must be JSON in bytes, not str"),
        (report(Completed(output=b"{")), "output is not JSON"),
        (report(Completed(output=b'"\xff"')), "output is not JSON"),
        (report(Completed(output=b"1", cost=5)), "outcome cost must be JSON in bytes, not int"),
        (report(Completed(output=b"1", token=5)), "outcome token must be text, not int"),
        (report(Completed(output=b"1", emit=[])), None),
        (report(Completed(output=b"1", emit=[Emitted("a", b"1")])), "outcome emit must be a tuple, not list"),
        (report(Completed(emit=(Emitted(5, b"1"),))), "outcome emit [0] name must be text, not int"),
        (report(Completed(emit=(Emitted("a", b"1"), Emitted("a", 1)))), "emit [1] payload must be JSON in bytes"),
        (report(Completed(emit=("told",))), "outcome emit [0] must be a Emitted, not str"),
        (report(Completed(emit=(Emitted("a", b'"' + b"x" * MAX_OUTCOME_BYTES + b'"'),))), "bytes in sum; at most"),
        (report(Failed(category="auth", error="no")), "outcome category must be a Category, not str"),
        (report(Failed(category=Category.AUTH, error="a\x00b")), "outcome error has characters that no database keeps"),
        (report(Failed(category=Category.AUTH, error="\ud800")), "outcome error has characters that no database keeps"),
        (report(Failed(category=Category.AUTH, error="x" * 20_001)), "outcome error has 20001 characters"),
        (report(Failed(category=Category.AUTH, error="no", delay=-1)), "outcome delay must be a time from 0"),
        (
            report(Failed(category=Category.AUTH, error="no", delay=True)),
            "delay must be a whole number, not bool",
        ),
        (report("done"), "outcome must be a Outcome, not str"),
        (report(Released(), fence=2**63), "fence is a number of more than 64 bits"),
        (TimeCame(**WHO, no=1.0), "no must be a whole number, not float"),
        (GateDecided(**WHO, approve="yes"), "approve must be true or false, not str"),
        (GateDecided(**WHO, approve=True, comment="\ud800"), "comment has characters that no database keeps"),
        (manual(outcome="Failed"), "outcome must be a ManualOutcome, not str"),
        (manual(evidence=("fine", 5)), "evidence [1] must be text, not int"),
        (manual(claim=b"nope"), "claim is not JSON"),
        (MessageArrived(**WHO, id="", name="paid", payload=b"1"), "id must have 1 to 255 printable characters"),
        (MessageArrived(**WHO, id="m", name="p\n", payload=b"1"), "name must have 1 to 255 printable characters"),
        (MessageArrived(**WHO, id="m", name="paid", payload=b"1e999"), "payload is not JSON"),
        (CancelRequested(**WHO, compensate=None), "compensate must be true or false, not NoneType"),
        (CancelRequested(**{**WHO, "actor": None}), "actor must be text, not NoneType"),
    ],
)
def test_what_could_not_be_read_again_is_named(event: Event, said: str | None) -> None:
    found = misfit_of_event(event)
    assert found is None if said is None else said in str(found)


def test_a_subclass_of_text_is_no_text_because_no_encoder_takes_it() -> None:
    class Text(str):
        pass

    assert misfit_of_event(GateDecided(**WHO, approve=True, comment=Text("x"))) == "comment must be text, not Text"


def test_rows_are_held_to_their_types_with_what_they_contain() -> None:
    assert misfit_of_row(Run("t", "r", 1)) is None
    assert misfit_of_row(Step("t", "r", 0, 1, note=Note(event="paid"))) is None
    assert misfit_of_row(Step("t", "r", 0, 1, note=Note(event=5))) == "note event must be text, not int"
    assert misfit_of_row(Run("t", "r", 1, seq="x")) == "seq must be a whole number, not str"
    attempt = Attempt("t", "r", 0, 1, 1, AttemptState.SUCCEEDED, 1, 1, "later")
    assert misfit_of_row(attempt) == "ended_at must be a whole number, not str"


def test_the_size_of_an_event_is_that_of_its_payloads() -> None:
    emitted = (Emitted("a", b"12345"), Emitted("b", b"1"))
    assert event_bytes(report(Completed(output=b"123", emit=emitted))) == 9
    assert event_bytes(report(Waiting(event="x", emit=emitted))) == 6
    assert event_bytes(MessageArrived(**WHO, id="m", name="n", payload=b"1234")) == 4
    assert event_bytes(manual(output=b"12", claim=b"3")) == 3
    assert event_bytes(TimeCame(**WHO)) == 0
    assert event_bytes(report(Outcome(emit=5))) == 0
