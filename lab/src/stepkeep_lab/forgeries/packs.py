"""Evidence packs of simulated runs: a true one verifies, and each altered one is refused.

The simulator plays runs with people, requested changes, escalation, delegation and composition. An alteration changes
one thing and recomputes what depends on it: digests, chains, the heads in the certificate and the manifest. It leaves
another place that tells the truth, so that it must be found. `stepkeep lab packs` and the tests call it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from hashlib import sha256
from random import Random
from typing import Any

import msgspec

from stepkeep.evidence.collect import collect
from stepkeep.evidence.pack import pack_files
from stepkeep.evidence.verifier import MANIFEST, PEOPLE, Pack, UnreadablePack, verify
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep_lab.reports import opening, table
from stepkeep_lab.simulation.run_seed import run_seed
from stepkeep_lab.simulation.scenario import draw, with_changes
from stepkeep_lab.simulation.stage import TENANT

Files = dict[str, bytes]
Doc = dict[str, Any]
Alter = Callable[["Forged", Random], bool]
"""Changes a pack; returns whether it had something to change."""

PEOPLED = {
    "approve": 1.0,
    "reject": 0.1,
    "complete": 1.0,
    "staff": 0.6,
    "policies": 0.25,
    "bias": {"gate": 0.5},
    "families": 0.2,
    "flows": 0.15,
    "planners": 0.15,
    "continued": 0.1,
    "letters": 0,
    "cancel": 0.02,
}
"""Changes to a scenario: people decide, and are changed meanwhile; many steps start children or add steps."""

FEATURES = {
    "decisions": b'"gate_decided"',
    "changes requested": b'"changes_requested"',
    "escalated": b'"escalated"',
    "on behalf of another": b'"delegation"',
    "with a key": b'"key"',
    "completed by hand": b'"completion_signalled"',
    "children": b'"children_started"',
    "calls and added steps": b'"plan_grown"',
    "verdicts of policies": b'"policy"',
}


class Packs(msgspec.Struct, kw_only=True):
    """The result: true packs with what is in them, those that were refused, and how the alterations fared."""

    packs: int = 0
    features: Counter[str] = msgspec.field(default_factory=Counter)
    accused: list[str] = []
    tried: Counter[str] = msgspec.field(default_factory=Counter)
    found: Counter[str] = msgspec.field(default_factory=Counter)
    missed: list[str] = []

    @property
    def ok(self) -> bool:
        return not self.accused and not self.missed

    def add(self, other: Packs) -> None:
        self.packs += other.packs
        self.accused += other.accused
        self.missed += other.missed
        for mine, more in ((self.features, other.features), (self.tried, other.tried), (self.found, other.found)):
            mine.update(more)


def check_packs(seeds: int, *, first: int = 0, alterations: int = 0, jobs: int = 1) -> Packs:
    """Verify the packs of all runs of these seeds, and alter as many as asked, each seed its share."""
    share = -(-alterations // seeds)
    whole = Packs()
    with ExitStack() as stack:
        pool = stack.enter_context(ProcessPoolExecutor(jobs)) if jobs > 1 else None
        for part in (pool.map if pool else map)(_check_seed, [(seed, share) for seed in range(first, first + seeds)]):
            whole.add(part)
    return whole


def _check_seed(given: tuple[int, int]) -> Packs:
    seed, alterations = given
    result, packs = Packs(), true_packs([seed])
    known: list[tuple[str, Files]] = []
    for run, files in packs:
        result.packs += 1
        journal = files["journal.jsonl"].replace(b"\\", b"")
        result.features.update(name for name, mark in FEATURES.items() if mark in journal)
        found = verify(Pack(files)).findings
        result.accused += [f"seed {seed}, run {run}: {one.rule}: {one.message}" for one in found[:3]]
        known.append((run, files))
    random = Random(seed)  # noqa: S311 - the same alterations each time
    kinds = sorted(ALTERATIONS)
    for number in range(alterations):
        name = kinds[(seed * alterations + number) % len(kinds)]
        alter(known, name, random, result, seed)
    return result


def alter(known: Sequence[tuple[str, Files]], name: str, random: Random, result: Packs, seed: int) -> None:
    """Alter the first pack, in a random order, that this kind can be applied to, and count whether it is refused."""
    for run, files in random.sample(known, len(known)):
        forged = Forged(files)
        if not ALTERATIONS[name](forged, random):
            continue
        forged.seal()
        if forged.files == files:
            continue
        result.tried[name] += 1
        try:
            is_found = bool(verify(Pack(forged.files)).findings)
        except UnreadablePack:
            is_found = True
        result.found[name] += is_found
        result.missed += [] if is_found else [f"seed {seed}, run {run}: {name}"]
        return


def true_packs(seeds: Iterable[int]) -> Iterator[tuple[str, Files]]:
    """The packs of all finished runs of these seeds."""
    for seed in seeds:
        made: list[tuple[str, Files]] = []

        async def pack(transactor: Transactor, runs: Sequence[str], made: list[tuple[str, Files]] = made) -> None:
            for run in runs:
                found = await collect(transactor, run, tenant=TENANT)
                if found.whole.record.run.state in RUN_TERMINAL:
                    made.append((run, pack_files(await found.contents(payloads=True))))

        run_seed(with_changes(draw(seed), PEOPLED), after=pack)
        yield from made


def page(result: Packs, commit: str, command: str, seconds: float) -> str:
    """The result in Markdown."""
    tried, found = result.tried.total(), result.found.total()
    lines = [
        *opening("Evidence packs", commit, command, seconds),
        f"{result.packs:,} true packs, {len(result.accused)} findings in them.",
        f"{tried:,} altered packs of {len(result.tried):,} kinds, {found:,} refused.",
        "",
        *(f"- {said}" for said in (*result.accused[:20], *result.missed[:20])),
        *table(("what is in a true pack", "packs"), sorted(result.features.items())),
        "",
        *table(
            ("altered", "packs", "refused"),
            [(one, result.tried[one], result.found[one]) for one in sorted(result.tried)],
        ),
    ]
    return "\n".join(lines) + "\n"


# -- what is altered ---------------------------------------------------------------------------------------------------
class Forged:
    """A pack in parts that can be changed. `seal` writes what follows from them, as a careful forger would."""

    def __init__(self, files: Files) -> None:
        self.files = dict(files)
        self.manifest: Doc = json.loads(files[MANIFEST])
        self.certificate: Doc = json.loads(files["certificate.json"])
        self.lines = {
            name: [json.loads(line) for line in body.splitlines()]
            for name, body in files.items()
            if name.endswith(".jsonl")
        }
        self.bodies = {name: [json.loads(line["body"]) for line in self.lines[name]] for name in CHAINED}
        self._before = json.dumps([self.lines, self.bodies])

    @property
    def entries(self) -> list[Doc]:
        return self.bodies["journal.jsonl"]

    def causes(self, *events: str) -> list[tuple[Doc, Doc]]:
        """The causes of these events, with their entries."""
        return [(entry, cause) for entry in self.entries for cause in entry["causes"] if cause["event"] in events]

    def redigest(self, old: str, new: str) -> None:
        """Put one digest in the place of another, everywhere in the journal."""
        self.bodies["journal.jsonl"] = json.loads(json.dumps(self.entries).replace(old, new))

    def seal(self) -> None:
        if json.dumps([self.lines, self.bodies]) != self._before:
            for name in CHAINED:
                self._chain(name)
            for name, lines in self.lines.items():
                self.files[name] = b"".join(_compact(line) + b"\n" for line in lines)
        self.files["certificate.json"] = json.dumps(self.certificate, indent=2).encode()
        listed = self.manifest["files"]
        self.manifest["files"] = {name: _digest(self.files[name]) for name in listed if name in self.files}
        self.files[MANIFEST] = json.dumps(self.manifest, indent=2).encode()

    def _chain(self, name: str) -> None:
        head, lines = b"", []
        for seq, body in enumerate(self.bodies[name], 1):
            text = json.dumps(body | {"seq": seq}, separators=(",", ":"), ensure_ascii=False)
            head = sha256(head + text.encode()).digest()
            lines.append({"body": text, "hash": head.hex(), "seq": seq})
        self.lines[name] = lines
        if name == PEOPLE:
            self.manifest |= {"people_entries": len(lines), "people_head": head.hex()}
        else:
            self.manifest |= {"entries": len(lines), "head": head.hex()}
            self.certificate |= {"entries": len(lines), "head": head.hex()}


CHAINED = ("journal.jsonl", PEOPLE)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()


def _other(random: Random, name: str | None) -> str:
    return random.choice([one for one in ("ann", "bea", "cyd", "dan", "eve", "fay", "gus", "zoe") if one != name])


def _manifest(field: str) -> Alter:
    def change(forged: Forged, random: Random) -> bool:
        before = forged.manifest[field]
        forged.manifest[field] = before + 1 if isinstance(before, int) else f"{before}x"
        return True

    return change


def _field(file: str, field: str, change: Callable[[Any, Random], Any]) -> Alter:
    """Change one field of one line of a file, where it is set."""

    def alter(forged: Forged, random: Random) -> bool:
        lines = [line for line in forged.lines[file] if line.get(field) is not None]
        if not lines:
            return False
        line = random.choice(lines)
        line[field] = change(line[field], random)
        return True

    return alter


def _detail(events: tuple[str, ...], field: str, change: Callable[[Any, Random], Any]) -> Alter:
    """Change one part of a cause in the journal alone."""

    def alter(forged: Forged, random: Random) -> bool:
        found = [cause for _, cause in forged.causes(*events) if field in (cause.get("detail") or {})]
        if not found:
            return False
        detail = random.choice(found)["detail"]
        detail[field] = change(detail[field], random)
        return True

    return alter


def _without_line(file: str) -> Alter:
    def alter(forged: Forged, random: Random) -> bool:
        lines = forged.lines[file]
        # A pack without any payload is one that leaves them out.
        if len(lines) < (2 if file == "payloads.jsonl" else 1):
            return False
        lines.pop(random.randrange(len(lines)))
        return True

    return alter


def _doubled_line(file: str) -> Alter:
    def alter(forged: Forged, random: Random) -> bool:
        forged.lines[file] += [random.choice(forged.lines[file])] if forged.lines[file] else []
        return bool(forged.lines[file])

    return alter


def _actor(event: str, among: Callable[[Any, Random], str]) -> Alter:
    """Another person did it, in the journal alone."""

    def alter(forged: Forged, random: Random) -> bool:
        found = [cause for _, cause in forged.causes(event)]
        if not found:
            return False
        cause = random.choice(found)
        cause["actor"] = among(cause["actor"], random)
        return True

    return alter


def _actor_and_row(forged: Forged, random: Random) -> bool:
    """Another person decided, in the journal and in decisions.jsonl; the output of the gate names the true one."""
    settled = {
        (entry["seq"], hop["no"]) for entry in forged.entries for hop in entry["hops"] if hop["trigger"] == "approved"
    }
    rows = {(row["no"], row["person"], row["at"]): row for row in forged.lines["decisions.jsonl"]}
    for entry, cause in random.sample(found := forged.causes("gate_decided"), len(found)):
        for seq, no in settled:
            row = rows.get((no, cause["actor"], entry["at"]))
            if seq == entry["seq"] and row is not None:
                cause["actor"] = row["person"] = _other(random, row["person"])
                return True
    return False


def _output(forged: Forged, random: Random) -> bool:
    """The output of a gate names another person; its digests are right."""
    found = [line for line in forged.lines["payloads.jsonl"] if line["text"].startswith('{"decision":')]
    if not found:
        return False
    line = random.choice(found)
    told = json.loads(line["text"])
    told["by"] = _other(random, told["by"])
    return _new_text(forged, line, json.dumps(told, separators=(",", ":"), ensure_ascii=False))


def _new_text(forged: Forged, line: Doc, text: str) -> bool:
    old, new = line["sha256"], _digest(text.encode())
    line |= {"text": text, "sha256": new}
    forged.redigest(old, new)
    return True


def _payload(forged: Forged, random: Random) -> bool:
    line = random.choice(forged.lines["payloads.jsonl"])
    line["text"] += " "
    line["sha256"] = _digest(line["text"].encode())
    return True


def _payload_place(forged: Forged, random: Random) -> bool:
    found = [line for line in forged.lines["payloads.jsonl"] if line.get("no") is not None]
    if found:
        random.choice(found)["no"] += 1
    return bool(found)


def _entry_time(forged: Forged, random: Random) -> bool:
    """A decision at another time, in the journal alone."""
    found = forged.causes("gate_decided")
    if found:
        random.choice(found)[0]["at"] += random.choice((-1, 1))
    return bool(found)


def _dropped(*events: str) -> Alter:
    """An entry of people is left out, and the later ones are numbered anew."""

    def alter(forged: Forged, random: Random) -> bool:
        found = [entry for entry, _ in forged.causes(*events)]
        if found:
            forged.entries.remove(random.choice(found))
        return bool(found)

    return alter


def _membership(field: str, change: Callable[[Any, Random], Any]) -> Alter:
    def alter(forged: Forged, random: Random) -> bool:
        found = [one for line in forged.lines["people.jsonl"] for one in line["memberships"]]
        if found:
            one = random.choice(found)
            one[field] = change(one[field], random)
        return bool(found)

    return alter


def _people_entry(change: Callable[[Doc, Random], None], *events: str) -> Alter:
    """An entry of the journal of people about a right of a person of this pack, with its chain recomputed."""

    def alter(forged: Forged, random: Random) -> bool:
        known = {line["person"] for line in forged.lines["people.jsonl"]}
        # The pack tells the delegations to its people, not those that they gave.
        found = [
            one
            for one in forged.bodies[PEOPLE]
            if one["event"] in events and (one.get("detail") or {}).get("to", one["subject"]) in known
        ]
        if found:
            change(random.choice(found), random)
        return bool(found)

    return alter


def _people_dropped(*events: str) -> Alter:
    def alter(forged: Forged, random: Random) -> bool:
        known = {line["person"] for line in forged.lines["people.jsonl"]}
        found = [one for one in forged.bodies[PEOPLE] if one["event"] in events and one["subject"] in known]
        if found:
            forged.bodies[PEOPLE].remove(random.choice(found))
        return bool(found)

    return alter


def _definition(before: bytes, after: bytes) -> Alter:
    """Other terms in the definition, with its digest in the journal and the certificate."""

    def alter(forged: Forged, random: Random) -> bool:
        old = forged.files["definition.json"]
        if before not in old or not forged.lines["decisions.jsonl"]:
            return False
        forged.files["definition.json"] = new = old.replace(before, after)
        forged.certificate["definition"]["digest"] = _digest(new)
        return True

    return alter


def _without_file(name: str) -> Alter:
    def alter(forged: Forged, random: Random) -> bool:
        del forged.files[name], forged.manifest["files"][name]
        if name in forged.lines:
            del forged.lines[name]
        return True

    return alter


def _arrow(forged: Forged, random: Random) -> bool:
    tables = json.loads(forged.files["machines.json"])
    tables["step"].append(["pending", "approved", "succeeded"])
    forged.files["machines.json"] = json.dumps(tables).encode()
    return True


def _certificate(field: str) -> Alter:
    def alter(forged: Forged, random: Random) -> bool:
        before = forged.certificate[field]
        forged.certificate[field] = (not before) if isinstance(before, bool) else f"{before}x"
        return True

    return alter


def _shown(forged: Forged, random: Random) -> bool:
    """What was shown differs, with its digest beside it; the journal has the true one."""
    if not forged.lines["gates.jsonl"]:
        return False
    row = random.choice(forged.lines["gates.jsonl"])
    row["shown"] = row["shown"].replace("{", '{"sum":1,', 1)
    row["shown_digest"] = _digest(row["shown"].encode())
    return True


DECIDED, ACTED = ("gate_decided",), ("gate_decided", "changes_requested", "escalation_requested")
MORE: Callable[[Any, Random], Any] = lambda value, random: value + 1  # noqa: E731
LESS: Callable[[Any, Random], Any] = lambda value, random: value - 1  # noqa: E731
NAMED: Callable[[Any, Random], Any] = lambda value, random: _other(random, value)  # noqa: E731
LONGER: Callable[[Any, Random], Any] = lambda value, random: f"{value}x"  # noqa: E731
WIDER: Callable[[Any, Random], Any] = lambda value, random: [*value, "role:x"]  # noqa: E731
UNLIKE: Callable[[Any, Random], Any] = lambda value, random: value | {"effect": "x"}  # noqa: E731
OPPOSITE: Callable[[Any, Random], Any] = lambda value, random: "rejected" if value == "approved" else "approved"  # noqa: E731

ALTERATIONS: dict[str, Alter] = {
    **{f"the manifest says another {name}": _manifest(name) for name in (
        "workflow", "version", "state", "run", "tenant", "payloads", "format",
    )},
    **{f"the certificate says another {name}": _certificate(name) for name in ("run", "state", "ok")},
    **{f"{name} is left out": _without_file(name) for name in (
        "gates.jsonl", "decisions.jsonl", "people.jsonl", "policy.jsonl", "definition.json", "machines.json", PEOPLE,
    )},
    **{f"a line of {name} is left out": _without_line(name) for name in (
        "gates.jsonl", "decisions.jsonl", "people.jsonl", "payloads.jsonl", "policy.jsonl",
    )},
    **{f"a line of {name} is there twice": _doubled_line(name) for name in ("decisions.jsonl", "people.jsonl")},
    "another person decided, in the journal": _actor("gate_decided", NAMED),
    "a person who did nothing else asked for changes": _actor("changes_requested", lambda value, random: "zoe"),
    "another person decided, in decisions.jsonl": _field("decisions.jsonl", "person", NAMED),
    "another person decided, in the journal and decisions.jsonl": _actor_and_row,
    "another person decided, in the output of the gate": _output,
    "another person, in people.jsonl": _field("people.jsonl", "person", NAMED),
    "another delegator, in the journal": _detail(ACTED, "for", NAMED),
    "another delegator, in decisions.jsonl": _field("decisions.jsonl", "on_behalf_of", NAMED),
    "another delegation": _detail(ACTED, "delegation", LONGER),
    "another key, in the journal": _detail(ACTED, "key", LONGER),
    "another key, in decisions.jsonl": _field("decisions.jsonl", "key_id", LONGER),
    "another right, in decisions.jsonl": _field("decisions.jsonl", "held_roles", WIDER),
    "another level, in decisions.jsonl": _field("decisions.jsonl", "level", MORE),
    "another comment, in decisions.jsonl": _field("decisions.jsonl", "comment", LONGER),
    "the opposite decision, in the journal": _detail(DECIDED, "decision", OPPOSITE),
    "the opposite decision, in decisions.jsonl": _field("decisions.jsonl", "decision", OPPOSITE),
    "another time of a decision, in the journal": _entry_time,
    "another time of a decision, in decisions.jsonl": _field("decisions.jsonl", "at", LESS),
    "another opening of the gate, in decisions.jsonl": _field("decisions.jsonl", "activation", MORE),
    "a decision is left out of the journal": _dropped(*DECIDED),
    "a request for changes is left out of the journal": _dropped("changes_requested"),
    "another time of an opening": _field("gates.jsonl", "opened_at", LESS),
    "another end of a gate": _field("gates.jsonl", "closed_at", MORE),
    "another outcome of a gate": _field("gates.jsonl", "outcome", LONGER),
    "another level of a gate": _field("gates.jsonl", "level", MORE),
    "something else was shown": _shown,
    "a role from another date": _membership("granted_at", MORE),
    "another role": _membership("name", LONGER),
    "a role that ends": _membership("revoked_at", lambda value, random: (value or 1) + 1),
    "a person is a service": _field("people.jsonl", "is_service", lambda value, random: not value),
    "a grant to another person in the journal of people": _people_entry(
        lambda entry, random: entry.update(subject=_other(random, entry["subject"])), "granted"
    ),
    "another date in the journal of people": _people_entry(
        lambda entry, random: entry.update(at=entry["at"] + 1), "granted", "revoked", "delegated", "undelegated"
    ),
    "a revoked role is left out of the journal of people": _people_dropped("revoked"),
    "a grant is left out of the journal of people": _people_dropped("granted"),
    "another payload": _payload,
    "a payload of another step": _payload_place,
    "another verdict, in policy.jsonl": _field("policy.jsonl", "verdict", UNLIKE),
    "another text of a policy": _field("policy.jsonl", "document", LONGER),
    "another quorum in the definition": _definition(b'"quorum":2', b'"quorum":3'),
    "other roles in the definition": _definition(b'"roles":["finance"]', b'"roles":["payroll"]'),
    "another arrow in the tables": _arrow,
}  # fmt: skip
