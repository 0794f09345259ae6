"""Forgeries that no reader of a log can detect once the chain is recomputed, with the reason.

Some are undetectable for some values only: others of that kind are found. A kept or signed head detects all of them.
A test compares the reasons with the table in `docs/conformance.md`. `campaign.py` calls it.
"""

from __future__ import annotations

FREE = "no rule decides the value: it comes from outside and is recorded as it came"
OUTPUT = "the output is not in the log; certify compares the digest with the stored output"
INPUT = "the input is not in the log; certify compares the digest with the stored input"
NO_OUTPUT = "a step may succeed without an output; certify compares with what is stored"
NO_DETAIL = "a cause may come without a detail"
LEASE = "the worker chooses the lease, and a handler the deadline of its wait; no definition limits them"
TAIL = "a run that has not ended may be exported at any entry; the log is then a true older one"
HEAD = "the head of the canonical journal is not in a dialect's log; certify compares both"
CANONICAL = "several canonical states may show as one state of a dialect"
NATIVE = "a definition of another format that asks for the same leads to the same run"
HOPS = "the dialect hides hops, and the log does not tell how many of them an entry has"
CLAIMS = "the dialect hides claims that were lost or released, so their number and their workers are unknown"
STOP = "the dialect hides why the run stopped, and a run that was cancelled has no category and another error"
STEP = "the dialect hides the hop of the step, and another step could have made it"
WAIT = "the dialect hides the wait and its deadline"
READY = "a step may be claimed at any time from the moment it is ready"
SPLIT = "one transaction with two causes and two transactions of the same time lead to the same run"

NOTE = "a message that no step consumed changes nothing in the run"
STORY = "a story that the machine could have lived is a legal story"

UNDETECTABLE: dict[str, str] = {
    "digest_of_another_output": OUTPUT,
    "digest_of_another_input": INPUT,
    "step.metadata.digest": OUTPUT,
    "step.without.digest": NO_OUTPUT,
    "step.metadata.error": FREE,
    "run.metadata.error": FREE,
    "run.metadata.detail": FREE,
    "step.metadata.detail": FREE,
    "run.without.detail": NO_DETAIL,
    "step.without.detail": NO_DETAIL,
    "run.metadata.actor": FREE,
    "step.metadata.actor": FREE,
    "longer_lease": LEASE,
    "lease_given_up_early": LEASE,
    "step.metadata.due_at": LEASE,
    "drop_tail": TAIL,
    "native_definition": NATIVE,
    "before_due": READY,
    "other_category": FREE,
    "step.metadata.category": FREE,
    "step.metadata.seq": SPLIT,
    "run.metadata.seq": SPLIT,
    "canonical:step.without.seq": SPLIT,
    "canonical:swap_moves": SPLIT,
    "canonical:drop_run_line": NOTE,
    "canonical:step.metadata.cause": SPLIT,
    **{
        f"{words}:{kind}": reason
        for words in ("ioa", "run", "linear", "action", "workstream")
        for kind, reason in (
            ("head.metadata.head", HEAD),
            ("head.metadata.canonical", CANONICAL),
            ("run.metadata.hop", HOPS),
            ("step.metadata.hop", HOPS),
        )
    },
    **{
        f"{words}:{kind}": reason
        for words in ("ioa", "action")
        for kind, reason in (
            ("foreign_fence", CLAIMS),
            ("step.metadata.fence", CLAIMS),
            ("other_actor", CLAIMS),
            ("attempt_off_by_one", CLAIMS),
            ("shorter_than_it_was", CLAIMS),
            ("step.metadata.duration_seconds", CLAIMS),
            ("timeout_before_deadline", WAIT),
            ("failure_told_as_success", STORY),
            ("run.without.category", STOP),
            ("run.without.error", STOP),
        )
    },
    "ioa:run.metadata.of": STEP,
    "run:run.metadata.of": STEP,
    "run:timeout_before_deadline": WAIT,
}
"""Each kind with the reason, by its name. A name with a colon is about one kind of log: `run:drop_tail`."""


def reason_for(name: str, words: str) -> str | None:
    return UNDETECTABLE.get(f"{words}:{name}") or UNDETECTABLE.get(name)
