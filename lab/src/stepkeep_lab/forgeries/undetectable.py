"""Forgeries that no reader of a log can detect once the chain is recomputed, with the reason.

`docs/conformance.md` has the same list. A kept or signed head detects all of them. `campaign.py` calls it.
"""

from __future__ import annotations

FREE = "no rule decides the value: it comes from outside and is recorded as it came"

UNDETECTABLE: dict[str, str] = {
    "digest_of_another_output": "the output is not in the log; certify compares the digest with the stored output",
    "digest_of_another_input": "the input is not in the log; certify compares the digest with the stored input",
    "step.metadata.digest": "the output is not in the log; certify compares the digest with the stored output",
    "step.without.digest": "a step may succeed without an output; certify compares with what is stored",
    "step.metadata.error": FREE,
    "run.metadata.error": FREE,
    "step.without.error": FREE,
    "run.metadata.detail": FREE,
    "step.metadata.detail": FREE,
    "run.without.detail": "an entry from before details were recorded looks the same",
    "step.without.detail": "an entry from before details were recorded looks the same",
    "run.metadata.actor": FREE,
    "longer_lease": "the worker chooses the lease; no definition limits it",
    "lease_given_up_early": "the worker chooses the lease; no definition limits it",
    "drop_tail": "a run that has not ended may be exported at any entry; the log is then a true older one",
    "drop_definition": "a log of format 1 has no definition; log verify says so in a note",
    "head.metadata.head": "the head of the canonical journal is not in a dialect's log; certify compares both",
    "head.metadata.canonical": "several canonical states may show as one state of a dialect",
}
"""Each kind with the reason, by its name. A name with a colon is about the log of one dialect: `run:drop_tail`."""


def reason_for(name: str, words: str) -> str | None:
    return UNDETECTABLE.get(f"{words}:{name}") or UNDETECTABLE.get(name)
