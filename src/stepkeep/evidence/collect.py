"""Reads what a certificate and an evidence pack are made from: one snapshot of the run, its definition, its payloads.

It only reads. The engine calls it; the judge and `pack` work on what it returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypedDict

import msgspec
from msgspec.structs import replace

from stepkeep.conformance.certificate import (
    Certificate,
    PeopleVerdict,
    PublishedDefinition,
    certify,
    documents_of,
    findings_of,
)
from stepkeep.conformance.chain import ChainVerdict, Neighbour, continued_in, judge_chain, predecessor_in
from stepkeep.conformance.digests import PayloadBytes
from stepkeep.conformance.report import Code, Finding
from stepkeep.conformance.tree import Spending, TreeRun, TreeVerdict, judge_tree
from stepkeep.dialects import registry as dialects
from stepkeep.evidence.pack import Contents, PackedPayload
from stepkeep.evidence.people import PeopleRecord, read_record
from stepkeep.evidence.verifier import ACTS
from stepkeep.kernel.composition.child_runs import is_child
from stepkeep.kernel.composition.continuation import ContinuationKind
from stepkeep.kernel.definition import OnExceeded, decode_definition
from stepkeep.kernel.errors import Conflict, DefinitionChanged, PayloadSealed, Unreadable
from stepkeep.kernel.machine.journal import SealedEntry, open_entry
from stepkeep.kernel.machine.rows import Child, ChildState, Run
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.logs.log import canonical_machines, lines_of, stored_payloads
from stepkeep.operations.pipeline import plans
from stepkeep.operations.pipeline.payloads import Payloads as StoredPayloads
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs import views
from stepkeep.operations.streams.reading import stored_ends
from stepkeep.store.change import StoredDefinition, StoredPolicy
from stepkeep.store.records import WholeRun

MOST_RUNS = 2000
"""How many runs of a tree a certificate covers: the largest tree, and the rollback of each run in it."""


class Collected:
    """A run as one snapshot, with its stored definition and its payloads in full."""

    def __init__(self, whole: WholeRun, stored: StoredDefinition, transactor: Transactor) -> None:
        self.whole, self.stored, self._transactor = whole, stored, transactor
        self._record: PeopleRecord | None = None

    async def payloads(self) -> PayloadBytes:
        given, attempts, steps, checkpoints = stored_payloads(await self._transactor.payloads.whole(self.whole))
        return PayloadBytes(input=given, attempts=attempts, steps=steps, checkpoints=checkpoints)

    async def certificate(self) -> Certificate:
        """The judge's certificate: of the run, of every run below it, and of its place in a chain."""
        own, run = await self.own_certificate(), self.whole.record.run
        links = await self._transactor.store.children.read_all(run.tenant, run.id)
        below = [link for link in links if is_child(link.child_id)]
        asked = next((link for link in links if not is_child(link.child_id)), None)
        own = replace(own, chain=await _chain_of(self._transactor, self, asked))
        return replace(own, tree=await _tree_of(self._transactor, self, below)) if below else own

    async def in_chain(self) -> Neighbour:
        """The run as the judge of a chain reads it."""
        whole, values = self.whole, self._transactor.payloads
        run = whole.record.run
        lines = documents_of(await self.log())
        then = continued_in(lines)
        output = None
        if then is not None:
            states = {step.no: step for step in whole.steps}
            plan = await plans.plan_for(self._transactor, run)
            owner = states[plan.numbers[then.step]]
            output = next(
                (one.output for one in whole.attempts if (one.no, one.fence) == (owner.no, owner.fence)), None
            )
        return Neighbour(
            run=run.id,
            lines=lines,
            input=await _opened(values, run, whole.record.details.input),
            output=None if output is None else await _opened(values, run, output),
        )

    async def log(self) -> list[bytes]:
        """The canonical log, in names where the definition is known."""
        try:
            plan = await plans.plan_for(self._transactor, self.whole.record.run)
        except DefinitionChanged:
            return [encode_line(line) for line in lines_of(self.whole, None)]
        return [encode_line(line) for line in lines_of(self.whole, plan)]

    async def own_certificate(self) -> Certificate:
        """The certificate of the run alone: the journal, its log in every dialect, the definition, the payloads, and
        the rows of the people who acted on it."""
        return replace(await self._judged(), people=await self._people_verdict())

    async def _people_verdict(self) -> PeopleVerdict | None:
        if not (names := self.people()):
            return None
        record, run = await self.people_record(), self.whole.record.run
        return PeopleVerdict(
            compared=len(names),
            entries=len(record.journal),
            head=record.journal[-1].hash.hex() if record.journal else "",
            findings=tuple(Finding(0, Code.PEOPLE, run.id, said) for said in record.about(names)),
        )

    async def _judged(self) -> Certificate:
        stored, run = self.stored, self.whole.record.run
        published = PublishedDefinition(
            name=stored.name, version=stored.version, digest=stored.digest, document=stored.document
        )
        judged = {name: dialects.judged(name) for name in dialects.names()}
        try:
            plan = await plans.plan_for(self._transactor, run)
        except DefinitionChanged:
            # A projection needs the definition.
            nameless = [encode_line(line) for line in lines_of(self.whole, None)]
            return certify(nameless, {}, canonical_machines(), judged, published)

        def lines_for(name: str | None) -> list[bytes]:
            return [encode_line(line) for line in lines_of(self.whole, plan, name)]

        tenant, store = run.tenant, self._transactor.store
        ends = await stored_ends(store, tenant, run.id)
        tellings = {name: partial(lines_for, name) for name in judged}  # one at a time is in memory
        stored_bytes, originals = replace(await self.payloads(), streams=ends), await self._originals()
        return certify(lines_for(None), tellings, canonical_machines(), judged, published, stored_bytes, originals)

    def spending(self) -> Spending:
        """The budget of the run that stops those below it, and what its attempts cost."""
        try:
            budget = decode_definition(self.stored.document).budget
        except msgspec.MsgspecError:
            # The certificate of the run says that its definition was changed.
            budget = msgspec.UNSET
        stops = budget is not msgspec.UNSET and budget.on_exceeded is OnExceeded.STOP
        first = open_entry(self.whole.entries[0].body).causes[0].detail or {}
        return Spending(
            limits=budget.limits if budget is not msgspec.UNSET and stops else {},
            costs=tuple((one.ended_at, _cost(one.cost)) for one in self.whole.attempts),
            # What an earlier run spent that this one was migrated from counts too, and is not in the tree.
            is_whole=(first.get("continues") or {}).get("as") != ContinuationKind.MIGRATE.value,
        )

    async def _originals(self) -> dict[str, list[bytes]]:
        """The logs of the runs whose steps this one adopted, as far as they are kept."""
        notes = [step.note for step in self.whole.steps if step.note is not None]
        known = {note.adopted.run for note in notes if note.adopted is not None}
        known |= {key.run for note in notes if note.grown is not None for key in note.grown.kept}
        known |= {note.call.key for note in notes if note.call is not None and note.call.key is not None}
        earlier = self.whole.record.details.rerun_of
        wanted = sorted(known | ({earlier} if earlier is not None and any(note.grown for note in notes) else set()))
        tenant, store = self.whole.record.run.tenant, self._transactor.store
        found = await store.read_whole(tenant, wanted, [], with_messages=False) if wanted else []
        logs = {}
        for one in found:
            plan = await plans.plan_for(self._transactor, one.record.run)
            logs[one.record.run.id] = [encode_line(line) for line in lines_of(one, plan)]
        return logs

    async def contents(self, *, payloads: bool) -> Contents:
        """What a pack of this run holds. Only a finished run has one: the journal of another still grows."""
        run = self.whole.record.run
        if run.state not in RUN_TERMINAL:
            raise Conflict(f"run {run.id} is {run.state}; an evidence pack is made of a finished run.")
        certificate, record = await self.certificate(), await self.people_record()
        return Contents(
            whole=self.whole,
            definition=self.stored.document,
            certificate=certificate.as_json(),
            payloads=_listed(await self.payloads()) if payloads else None,
            people=[record.authorities[name] for name in self.people()],
            people_journal=record.journal,
            verdicts=await self._verdicts(),
        )

    async def _verdicts(self) -> list[Mapping[str, Any]]:
        """The verdicts of policies in the journal, and each revision of the live policy that was asked."""
        verdicts: list[Mapping[str, Any]] = [
            {"kind": "verdict", "entry": sealed.seq, "step": step, "verdict": record}
            for sealed in self.whole.entries
            for cause in open_entry(sealed.body).causes
            for step, record in (cause.detail or {}).get("policy", {}).items()
        ]
        tenant, store = self.whole.record.run.tenant, self._transactor.store
        numbers = sorted({one["verdict"]["revision"] for one in verdicts if "revision" in one["verdict"]})
        found = [await store.read_policy(tenant, number) for number in numbers]
        return [*verdicts, *(_revision(stored) for stored in found if stored is not None)]

    def people(self) -> list[str]:
        """The people behind the decisions, completions and requests, and those for whom they acted."""
        names = {name for vote in self.whole.votes for name in (vote.person, vote.on_behalf_of) if name is not None}
        return sorted(names | {name for entry in self.whole.entries for name in people_in(entry)})

    async def people_record(self) -> PeopleRecord:
        """The journal of people and what is in the tables beside it, read once."""
        if self._record is None:
            store, tenant = self._transactor.store, self.whole.record.run.tenant
            self._record = await read_record(store, tenant, self.people())
        return self._record


async def collect(transactor: Transactor, run_id: str, *, tenant: str) -> Collected:
    """Read a run in one snapshot, and its definition as it is stored now."""
    whole = await views.read_snapshot(transactor, run_id, tenant=tenant, with_messages=True)
    return Collected(whole, await plans.stored_definition(transactor, whole.record.run), transactor)


async def _children_of(transactor: Transactor, tenant: str, run_id: str) -> list[Child]:
    """The links to the children of a run. A run as which a flow continued is no child, and is certified by itself."""
    return [link for link in await transactor.store.children.read_all(tenant, run_id) if is_child(link.child_id)]


async def _opened(values: StoredPayloads, run: Run, payload: bytes) -> bytes | None:
    """A payload as the user gave it; None if this process cannot read it."""
    try:
        return await values.value(run.tenant, run.id, payload)
    except (PayloadSealed, Unreadable):
        return None


async def _chain_of(transactor: Transactor, one: Collected, asked: Child | None) -> ChainVerdict | None:
    """Compare a run with the runs before and after it, if its flow continued as new or it continues one."""
    try:
        plan = await plans.plan_for(transactor, one.whole.record.run)
    except DefinitionChanged:
        return None  # its log has no names, and its certificate says so
    if not plan.has_flows:
        return None
    own, store, tenant = await one.in_chain(), transactor.store, one.whole.record.run.tenant
    then = continued_in(own.lines)
    if asked is None and then is not None:
        asked = await store.children.read_link(tenant, then.run)
    begun = asked if asked is not None and asked.state is not ChildState.REQUESTED else None
    beside = (predecessor_in(own.run, own.lines), None if begun is None else begun.child_id)
    found = list[Neighbour | None]()
    for run_id in beside:
        kept = run_id is not None and await store.read_run(tenant, run_id) is not None
        neighbour = await collect(transactor, run_id, tenant=tenant) if kept and run_id is not None else None
        found.append(None if neighbour is None else await neighbour.in_chain())
    wanted = (beside[0], None if then is None or (asked is not None and begun is None) else then.run)
    missing = [run_id for run_id, kept in zip(wanted, found, strict=True) if run_id is not None and kept is None]
    before, after = found
    return judge_chain(own, before, after, asked=None if asked is None else asked.child_id, missing=missing)


async def _tree_of(transactor: Transactor, root: Collected, links: Sequence[Child]) -> TreeVerdict:
    """Certify every run below a run, and compare the journals of parents and children."""
    run = root.whole.record.run
    logs = {run.id: documents_of(await root.log())}
    spending = {run.id: root.spending()}
    found, missing = list[TreeRun](), list[str]()
    queue = [(link, root) for link in links]
    for link, parent in queue:  # grows during the loop
        if link.state not in (ChildState.STARTED, ChildState.ENDED) or len(found) >= MOST_RUNS:
            continue
        if await transactor.store.read_run(run.tenant, link.child_id) is None:
            missing.append(link.child_id)
            continue
        child = await collect(transactor, link.child_id, tenant=run.tenant)
        one = await child.own_certificate()
        logs[link.child_id] = documents_of(await child.log())
        spending[link.child_id] = child.spending()
        plan = await plans.plan_for(transactor, parent.whole.record.run)
        found.append(
            TreeRun(
                run=link.child_id,
                parent=link.run_id,
                step=plan.at(link.no).name,
                state=one.state,
                head=one.head,
                entries=one.entries,
                ok=one.ok,
                findings=findings_of(one),
                undoes=link.undoes,
            )
        )
        queue += [(below, child) for below in await _children_of(transactor, run.tenant, link.child_id)]
    if missing or len(found) >= MOST_RUNS:
        spending = {run_id: replace(one, is_whole=False) for run_id, one in spending.items()}
    return judge_tree(found, logs, missing, spending)


def _cost(cost: bytes | None) -> dict[str, float]:
    found = None if cost is None else msgspec.json.decode(cost)
    return found if isinstance(found, dict) else {}


def people_in(entry: SealedEntry) -> Iterator[str]:
    """The people who acted on a step in this entry, and those for whom they acted."""
    for cause in open_entry(entry.body).causes:
        if cause.event in ACTS:
            yield from (name for name in (cause.actor, (cause.detail or {}).get("for")) if name is not None)


class RevisionLine(TypedDict):
    """A revision of the live policy as a pack has it."""

    kind: Literal["revision"]
    revision: int
    name: str
    digest: str
    document: str
    published_at: int
    published_by: str


def _revision(stored: StoredPolicy) -> RevisionLine:
    return {
        "kind": "revision",
        "revision": stored.revision,
        "name": stored.name,
        "digest": stored.digest,
        "document": stored.document.decode(),
        "published_at": stored.published_at,
        "published_by": stored.published_by,
    }


def _listed(payloads: PayloadBytes) -> list[PackedPayload]:
    return [
        PackedPayload(no=None, fence=None, text=payloads.input),
        *(PackedPayload(no=no, fence=fence, text=text) for (no, fence), text in sorted(payloads.attempts.items())),
        *(PackedPayload(no=no, fence=None, text=text) for no, text in sorted(payloads.steps.items())),
        *(
            PackedPayload(no=no, fence=None, text=text, checkpoint=name)
            for (no, name), text in sorted(payloads.checkpoints.items())
        ),
    ]
