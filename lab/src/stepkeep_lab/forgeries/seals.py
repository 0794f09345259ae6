"""Recomputes the chain of a forged log, as a forger with the whole file would: only the story is then wrong.

Canonical entries are encoded anew and chained; lines of a dialect are numbered and chained. It must not repair what a
forgery says. `campaign.py` calls it after each forgery.
"""

from __future__ import annotations

import hashlib
from itertools import groupby
from typing import Any

from stepkeep.conformance.encoding import GENESIS, cause_text, chained, compact, entry_bytes, hop_text, parse
from stepkeep.conformance.words.dialect_line import line_hash

Line = dict[str, Any]
DEFINITION, HEAD = "journal_definition", "journal_head"


def resealed(lines: list[Line], *, canonical: bool) -> list[Line]:
    """The same lines with the numbers and hashes that they would have if they were true."""
    return _canonical(lines) if canonical else _dialect(lines)


def _dialect(lines: list[Line]) -> list[Line]:
    chain, number = b"", 0
    for line in lines:
        said = line["metadata"]
        is_first = line["event_type"] == DEFINITION
        number += not is_first
        said["line"] = 0 if is_first else number
        if line["event_type"] == HEAD:
            said |= {"lines": number - 1, "chain": chain.hex()}
        chain = line_hash(chain, line)
        said["hash"] = chain.hex()
    return lines


def _canonical(lines: list[Line]) -> list[Line]:
    numbers = {line["metadata"]["step"]: line["metadata"]["no"] for line in lines if "step" in line["metadata"]}
    head, seq = GENESIS, 0
    for is_hop, some in groupby(lines, key=lambda line: line["event_type"] not in (DEFINITION, HEAD)):
        for _, group in groupby(some, key=lambda line: line["metadata"].get("seq")) if is_hop else ():
            seq += 1
            head = _seal(list(group), seq, head, numbers)
    for line in lines:
        if line["event_type"] == HEAD:
            line["metadata"] |= {"seq": seq, "entries": seq, "hash": head.hex()}
    return lines


def _seal(entry: list[Line], seq: int, head: bytes, numbers: dict[str, int]) -> bytes:
    causes: list[str] = []
    hops: list[str] = []
    before: Any = None
    for place, line in enumerate(entry):
        said = line["metadata"]
        said.pop("hash", None)
        if said["cause"] != before or "detail" in said or line["event_type"] == "run_note":
            before = said["cause"]
            detail = said.get("detail")
            causes.append(cause_text(said["event"], said["actor"], None if detail is None else compact(detail)))
        said |= {"seq": seq, "hop": place, "hops": len(entry), "cause": len(causes) - 1}
        before = said["cause"]
        if line["event_type"] != "run_note":
            hops.append(_hop(line, numbers))
    first = entry[0]["metadata"]
    owner = first.get("run_id") or first.get("worker_id")
    head = chained(head, entry_bytes(first["tenant"], owner, seq, first["at"], causes, hops))
    entry[-1]["metadata"]["hash"] = head.hex()
    return head


def _hop(line: Line, numbers: dict[str, int]) -> str:
    said = line["metadata"]
    lasted = said.get("duration_seconds")
    rest = {name: said.get(name) for name in ("fence", "attempt", "due_at", "category", "error", "digest")}
    rest |= {
        "of": numbers.get(said["of"]) if "of" in said else None,
        "took": None if lasted is None else round(lasted * 1_000_000),
    }
    return hop_text(said.get("no", -1), line["trigger"], line["from_state"], line["to_state"], said["cause"], rest)


def redefined(lines: list[Line]) -> None:
    """Recompute the digest of a changed definition wherever a log names it."""
    old = lines[0]["metadata"]["digest"]
    new = hashlib.sha256(compact(lines[0]["metadata"]["definition"]).encode()).hexdigest()
    lines[:] = [parse(compact(line).replace(old, new)) for line in lines]
