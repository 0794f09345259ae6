"""A certificate for one run: what was verified, the findings, and the hashes it is valid for.

Inputs are the exported logs (canonical, and one per dialect) and the stored definition. Each log is verified alone.
Each dialect log is compared with the projection of the canonical log. The stored definition must have its published
digest. `stepkeep certify` prints the certificate.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain as joined
from typing import Any

import msgspec

from stepkeep.conformance.adoption import check_calls, check_originals, continuation_in
from stepkeep.conformance.chain import ChainVerdict
from stepkeep.conformance.contract import Contract, read_contract
from stepkeep.conformance.digests import PayloadBytes, compare_payloads
from stepkeep.conformance.line import is_opening, read_line
from stepkeep.conformance.machines import Machines
from stepkeep.conformance.report import Code, Finding, Report, quoted
from stepkeep.conformance.schema import HEAD
from stepkeep.conformance.tree import TreeVerdict
from stepkeep.conformance.verify import verify_lines
from stepkeep.conformance.words.dialect_words import Exact, compare, told_exactly
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects.dialect import JudgedDialect

UNREADABLE = frozenset({Code.JSON, Code.SCHEMA})
"""Findings about lines of which parts are missing: such a log is compared with no other."""

Log = Sequence[bytes]
Doc = Mapping[str, Any]


class DialectVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The dialect log of the run: its final state, the head it is chained to, and its findings."""

    dialect: str
    own: bool
    state: str | None
    lines: int
    extensions: int
    invariants: int
    chain: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings


class PublishedDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """The definition that the run's row names (name, version, digest), and the stored document."""

    name: str
    version: int
    digest: str
    document: bytes


class DefinitionVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of the run, and whether the stored document matches its digest."""

    name: str
    version: int
    digest: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings


class PayloadVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The stored input and outputs: how many were compared with their digests in the journal, and the findings."""

    compared: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings


class PeopleVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The people who acted on the run: how many, the journal of people that their rows were compared with, and the
    findings."""

    compared: int
    entries: int
    head: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings


class AdoptionVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The steps that the run took from earlier ones: how many were compared with the journals of these, which of these
    runs are no longer kept, and the findings."""

    compared: int
    missing: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one run. It covers the journal up to the head it names, and no later entry."""

    run: str
    written_in: str
    state: str
    head: str
    entries: int
    counts: dict[str, int]
    definition: DefinitionVerdict | None
    payloads: PayloadVerdict | None
    canonical: tuple[Finding, ...]
    dialects: tuple[DialectVerdict, ...]
    adopted: AdoptionVerdict | None = None
    tree: TreeVerdict | None = None
    chain: ChainVerdict | None = None
    people: PeopleVerdict | None = None

    @property
    def ok(self) -> bool:
        parts = (self.definition, self.payloads, self.adopted, self.tree, self.chain, self.people)
        stored_ok = all(one is None or one.ok for one in parts)
        return stored_ok and not self.canonical and all(one.ok for one in self.dialects)

    @property
    def verdict(self) -> str:
        """`conforms` or `does not conform`."""
        return "conforms" if self.ok else "does not conform"

    def as_json(self) -> dict[str, Any]:
        """The documented JSON object behind `--json`."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for view, one in zip(plain["dialects"], self.dialects, strict=True):
            view["ok"] = one.ok
        if self.tree is not None:
            plain["tree"]["ok"] = self.tree.ok
        if self.chain is not None:
            plain["chain"]["ok"] = self.chain.ok
        return {"verdict": self.verdict, "ok": self.ok, **plain}

    def page(self) -> str:
        """The certificate as text."""
        return "\n".join(_page(self)) + "\n"


def certify(
    canonical: Log,
    tellings: Mapping[str, Log | Callable[[], Log]],
    machines: Machines,
    judged: Mapping[str, JudgedDialect],
    published: PublishedDefinition | None = None,
    payloads: PayloadBytes | None = None,
    originals: Mapping[str, Log] | None = None,
) -> Certificate:
    """Certify a run from its exported logs (canonical, and one per dialect), its definition and its payloads.

    A telling may be a function that makes it. `originals` has the canonical logs of runs whose steps this one adopted.
    """
    report = verify_lines(canonical, machines)
    documents = list(_documents(canonical))
    contract = _contract(canonical)
    is_garbled = bool(UNREADABLE.intersection(finding.code for finding in report.findings))
    head = next((one for one in documents if one.get("event_type") == HEAD), {})
    said = head.get("metadata", {})
    written_in = _written_in(canonical)
    return Certificate(
        run=str(said.get("run_id")),
        written_in=written_in,
        state=str(head.get("to_state")),
        head=str(said.get("hash")),
        entries=int(said.get("entries", 0)),
        counts=_counts(documents),
        definition=None if published is None else _definition(published, str(said.get("run_id"))),
        payloads=None if payloads is None else _payloads(documents, payloads, str(said.get("run_id"))),
        canonical=report.findings,
        dialects=tuple(
            _verdict(
                judged[name],
                log() if callable(log) else log,
                documents,
                contract,
                own=written_in == name,
                is_garbled=is_garbled,
            )
            for name, log in tellings.items()
        ),
        adopted=_adopted(documents, originals or {}, str(said.get("run_id"))),
    )


def _adopted(documents: Sequence[Doc], originals: Mapping[str, Log], run: str) -> AdoptionVerdict | None:
    told = continuation_in(documents)
    if told is None or not (told["adopted"] or "flows" in told):
        return None
    references = told["adopted"]
    logs = {name: list(_documents(log)) for name, log in originals.items()}
    compared = list(check_originals(references, logs))
    wrong = [*((step, said) for step, said in compared if said is not None), *check_calls(told, logs)]
    findings = tuple(Finding(1, Code.ADOPTION, run, f"step {quoted(step)}: {said}") for step, said in wrong)
    missing = tuple(sorted({str(item["run"]) for item in references} - logs.keys()))
    return AdoptionVerdict(compared=len(compared), missing=missing, findings=findings)


def _definition(published: PublishedDefinition, run: str) -> DefinitionVerdict:
    found = hashlib.sha256(published.document).hexdigest()
    said = ""
    if found != published.digest:
        said = f"the stored document has the digest {found}, not the one it was published under"
    else:
        content = json.loads(published.document)
        if (content.get("name"), content.get("version")) != (published.name, published.version):
            said = "the stored document is of another name or version than its row"
    findings = (Finding(0, Code.DEFINITION, run, said),) if said else ()
    return DefinitionVerdict(name=published.name, version=published.version, digest=published.digest, findings=findings)


def _payloads(documents: Sequence[Doc], payloads: PayloadBytes, run: str) -> PayloadVerdict:
    compared = list(compare_payloads(documents, payloads))
    found = tuple(Finding(line, Code.PAYLOAD, run, said) for line, said in compared if said is not None)
    return PayloadVerdict(compared=len(compared), findings=found)


def _verdict(
    judged: JudgedDialect, log: Log, canonical: Sequence[Doc], contract: Contract | None, *, own: bool, is_garbled: bool
) -> DialectVerdict:
    invariants = len(judged.invariants) if own else 0
    found = list[Finding]()
    exact = None if is_garbled else told_exactly(judged, contract, log, canonical, own=own)
    if exact is None:
        report: Report = replay_lines(log, judged, alone=False)
        numbered = list(_numbered(log))
        told = [line for _, line in numbered]
        last = told[-1] if told else {}
        found += report.findings
        if not is_garbled and not UNREADABLE.intersection(finding.code for finding in found):
            found += compare(judged, contract, numbered, canonical)
        exact = Exact(
            lines=report.lines,
            extensions=sum(line.get("metadata", {}).get("extension") is True for line in told),
            state=last.get("to_state"),
            chain=str(last.get("metadata", {}).get("hash")),
        )
    return DialectVerdict(
        dialect=judged.name,
        own=own,
        invariants=invariants,
        findings=tuple(found),
        **msgspec.structs.asdict(exact),
    )


def _contract(canonical: Log) -> Contract | None:
    """The definition on the first line of a canonical log."""
    opening = read_line(canonical[0]).opening if canonical else None
    found = None if opening is None else read_contract(opening.document)
    return found if isinstance(found, Contract) else None


def differences_from(judged: JudgedDialect, told: Iterable[bytes | str], canonical: Log) -> tuple[Finding, ...]:
    """Every difference between the log of one run in a dialect and its canonical log, which must be verified before."""
    return tuple(compare(judged, _contract(canonical), _numbered(told), _documents(canonical)))


def _documents(log: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    return (line for _, line in _numbered(log))


def _numbered(log: Iterable[bytes | str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of a log about its run and steps, with their places in it."""
    for place, raw in enumerate(log, 1):
        try:
            document = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if not isinstance(document, dict) or is_opening(document):
            continue
        if isinstance(document.get("metadata"), dict) and "to_state" in document:
            yield place, document


def _written_in(canonical: Log) -> str:
    opening = read_line(canonical[0]).opening if canonical else None
    return "native" if opening is None else opening.written_in


def _counts(canonical: Sequence[Doc]) -> dict[str, int]:
    steps = [line for line in canonical if line.get("event_type") == "step_state_transition"]
    last = Counter({line["entity_id"]: line["to_state"] for line in steps}.values())
    triggers = Counter(line["trigger"] for line in steps)
    return {
        "lines": len(canonical),
        "steps": sum(last.values()),
        **{f"steps_{state}": count for state, count in sorted(last.items())},
        "claims": triggers["claimed"],
        "retries": triggers["retry_scheduled"],
        "leases_lost": triggers["lease_lost"],
    }


def documents_of(log: Log) -> list[dict[str, Any]]:
    """The lines of a canonical log about its run and steps, as the judge of a tree reads them."""
    return list(_documents(log))


def findings_of(one: Certificate) -> int:
    """How many findings a certificate has, those about runs below it left out."""
    parts = (one.definition, one.payloads, one.adopted, one.people)
    stored = [part.findings for part in parts if part is not None]
    return sum(map(len, (one.canonical, *stored, *(view.findings for view in one.dialects))))


def _tree(tree: TreeVerdict) -> Iterator[str]:
    good = sum(run.ok for run in tree.runs)
    gone = f" No longer kept: {', '.join(tree.missing)}." if tree.missing else ""
    yield f"Runs below it: {good:,} of {len(tree.runs):,} conform by themselves.{gone}"
    yield ""
    yield "| run | child of | state | entries | findings |"
    yield "|---|---|---|---|---|"
    for run in tree.runs:
        undoes = "" if run.undoes is None else f" (rolls {run.undoes} back)"
        yield f"| {run.run}{undoes} | {run.parent} {run.step} | {run.state} | {run.entries:,} | {run.findings} |"
    yield ""


def _chain(chain: ChainVerdict) -> Iterator[str]:
    named = [f"it continues run {chain.before}"] if chain.before is not None else []
    named += [f"it continues as run {chain.after}"] if chain.after is not None else []
    gone = f" No longer kept: {', '.join(chain.missing)}." if chain.missing else ""
    yield f"Chain: {', and '.join(named) or 'none'}. Compared with {chain.compared} of them.{gone}"
    yield ""


# -- for people ------------------------------------------------------------------------------------------------------
def _page(one: Certificate) -> Iterator[str]:
    verdict = "conforms" if one.ok else "DOES NOT CONFORM"
    yield f"# Certificate of run {one.run}"
    yield ""
    yield f"Verdict: **{verdict}**. The run is {one.state}; it was written in the {one.written_in} format."
    yield ""
    yield f"Journal head: `{one.head}` after {one.entries:,} entries. This page speaks for that head and no later one."
    yield ""
    yield from _stored(one)
    if one.tree is not None:
        yield from _tree(one.tree)
    if one.chain is not None:
        yield from _chain(one.chain)
    yield ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in one.counts.items()) + "."
    yield ""
    yield from _logs(one)
    verdicts = (one.definition, one.payloads, one.adopted, one.people, one.tree, one.chain)
    stored = [verdict.findings for verdict in verdicts if verdict is not None]
    for finding in joined.from_iterable(stored):
        yield f"\n- {finding.code}: {finding.message}"
    for name, findings in [("canonical", one.canonical), *((view.dialect, view.findings) for view in one.dialects)]:
        for finding in findings:
            yield f"\n- {name} log, {finding}"


def _stored(one: Certificate) -> Iterator[str]:
    """What the certificate says of the definition, the payloads, adopted steps and people."""
    if one.definition is not None:
        stands = "has" if one.definition.ok else "DOES NOT HAVE"
        named = f"{one.definition.name}, version {one.definition.version}"
        yield f"Definition: {named}. The stored document {stands} the digest `{one.definition.digest}`."
        yield ""
    if one.payloads is not None:
        matched = one.payloads.compared - len(one.payloads.findings)
        yield f"Stored inputs and outputs: {matched:,} of {one.payloads.compared:,} have the digest in the journal."
        yield ""
    if one.adopted is not None:
        matched = one.adopted.compared - len(one.adopted.findings)
        said = f"Adopted steps: {matched:,} of {one.adopted.compared:,} are as in the journals of their runs."
        gone = f" No longer kept: {', '.join(one.adopted.missing)}." if one.adopted.missing else ""
        yield said + gone
        yield ""
    if one.people is not None:
        told = f"the journal of people ({one.people.entries:,} entries, `{one.people.head[:16]}…`)"
        stands = "follow" if one.people.ok else "DO NOT FOLLOW"
        yield f"People: the rows of {one.people.compared:,} who acted {stands} from {told}."
        yield ""


def _logs(one: Certificate) -> Iterator[str]:
    yield "| log | ends as | lines | extensions | invariants | findings | last hash |"
    yield "|---|---|---|---|---|---|---|"
    lines = one.counts["lines"]
    yield f"| canonical | {one.state} | {lines:,} | – | the engine's | {len(one.canonical)} | `{one.head[:16]}…` |"
    for view in one.dialects:
        asked = f"{view.invariants} asked" if view.own else "not its own"
        yield (
            f"| {view.dialect} | {view.state} | {view.lines:,} | {view.extensions} | {asked} "
            f"| {len(view.findings)} | `{view.chain[:16]}…` |"
        )
