"""Verifies an evidence pack of Stepkeep with the standard library alone: `python verify.py PACK.zip`.

A pack holds a copy of this file. An auditor who does not trust the pack takes the file from another source: it is the
same in every pack of one version. The script reads one archive, writes nothing but its report, and contacts no system.
It prints each finding with its name, and what it could not check. Exit status: 0 without findings, 1 with findings, and
2 if the archive cannot be read.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

FORMAT = "stepkeep-evidence/1"
MANIFEST, SIGNATURES = "manifest.json", "signature.json"
MOST_BYTES = 512 * 1024 * 1024
"""The largest size of all files of a pack together, unpacked. A larger archive is refused."""

HEAD_CONTEXT, PACK_CONTEXT = b"stepkeep-head/1\n", b"stepkeep-pack/1\n"
RUN_ENTITY = -1
"""The number that a hop of the run itself has in the journal; steps are numbered from 0."""

Doc = dict[str, Any]


class Finding(NamedTuple):
    """One thing that is wrong: the name of the broken rule, and a sentence that says where."""

    rule: str
    message: str


class Report(NamedTuple):
    """The result: findings, what was checked (with counts), and what could not be checked."""

    run: str
    findings: list[Finding]
    checked: list[str]
    unchecked: list[str]

    @property
    def ok(self) -> bool:
        return not self.findings


class UnreadablePack(Exception):
    """The file is no evidence pack, or too large to be one."""


# -- reading -----------------------------------------------------------------------------------------------------------
class Pack:
    """The files of a pack in memory, by name."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.manifest: Doc = self.json(MANIFEST)
        if self.manifest.get("format") != FORMAT:
            raise UnreadablePack(f"{MANIFEST} does not say that this is a pack of the format {FORMAT}")

    def json(self, name: str) -> Doc:
        found = parsed(name, self.files.get(name, b""))
        if not isinstance(found, dict):
            raise UnreadablePack(f"{name} does not hold a JSON object")
        return found

    def lines(self, name: str) -> list[Doc]:
        found = [parsed(name, line) for line in self.files.get(name, b"").splitlines() if line.strip()]
        if not all(isinstance(one, dict) for one in found):
            raise UnreadablePack(f"{name} does not hold one JSON object per line")
        return found


def parsed(name: str, text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise UnreadablePack(f"{name} is not JSON: {problem}") from None


def read_pack(path: str) -> Pack:
    """Read an archive into memory. Its members are never written to disk."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > MOST_BYTES:
                raise UnreadablePack(f"{path} would unpack to more than {MOST_BYTES:,} bytes")
            names = [member.filename for member in members]
            if len(set(names)) != len(names):
                raise UnreadablePack(f"{path} holds two files of one name")
            return Pack({member.filename: archive.read(member) for member in members})
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as problem:
        raise UnreadablePack(f"{path} cannot be read: {problem}") from None


# -- checking ----------------------------------------------------------------------------------------------------------
class Checks:
    """Collects findings while the checks run one after the other."""

    def __init__(self, pack: Pack) -> None:
        self.pack = pack
        self.findings: list[Finding] = []
        self.checked: list[str] = []
        self.unchecked: list[str] = []
        self.entries: list[Doc] = []

    def wrong(self, rule: str, message: str) -> None:
        self.findings.append(Finding(rule, message))

    def did(self, sentence: str) -> None:
        self.checked.append(sentence)

    def could_not(self, sentence: str) -> None:
        self.unchecked.append(sentence)


def check_files(checks: Checks) -> None:
    """Every file has the digest that the manifest has for it, and no file is missing or extra."""
    listed, files = checks.pack.manifest.get("files", {}), checks.pack.files
    for name in sorted(set(listed) - set(files)):
        checks.wrong("file_missing", f"{name} is in the manifest and not in the pack")
    for name in sorted(set(files) - set(listed) - {MANIFEST, SIGNATURES}):
        checks.wrong("file_extra", f"{name} is in the pack and not in the manifest")
    for name in sorted(set(files) & set(listed)):
        if sha256(files[name]) != listed[name]:
            checks.wrong("file_changed", f"{name} does not have the digest that the manifest has for it")
    checks.did(f"{len(listed)} files against the manifest")


def check_chain(checks: Checks) -> None:
    """Each entry of the journal has the hash over the one before it and its own bytes, up to the head."""
    head, manifest = b"", checks.pack.manifest
    for place, line in enumerate(checks.pack.lines("journal.jsonl"), 1):
        body = str(line.get("body", "")).encode()
        head = hashlib.sha256(head + body).digest()
        if line.get("seq") != place:
            checks.wrong("journal_gap", f"entry {place} of the journal is missing or out of order")
            return
        if head.hex() != line.get("hash"):
            checks.wrong("journal_changed", f"entry {place} of the journal, or one before it, was changed")
            return
        entry = parsed("journal.jsonl", body)
        if (entry.get("run_id"), entry.get("tenant"), entry.get("seq")) != (manifest["run"], manifest["tenant"], place):
            checks.wrong("journal_foreign", f"entry {place} of the journal belongs to another run")
            return
        checks.entries.append(entry)
    if head.hex() != manifest.get("head") or len(checks.entries) != manifest.get("entries"):
        checks.wrong("journal_head", "the journal does not end at the head that the manifest names")
    checks.did(f"the hash chain over {len(checks.entries)} entries of the journal")


def check_definition(checks: Checks) -> None:
    """The definition is the one that the journal was begun with."""
    recorded = origin_of(checks.entries).get("definition")
    if recorded is None:
        checks.could_not("the definition: the journal of this run is from a version that recorded no digest of it")
    elif sha256(checks.pack.files.get("definition.json", b"")) != recorded:
        checks.wrong("definition_changed", "definition.json is not the definition that the run was created from")
    else:
        checks.did("the definition against its digest in the journal")


def check_arrows(checks: Checks) -> None:
    """Each hop continues from the state before it, and is an arrow of the tables in the pack."""
    tables = checks.pack.json("machines.json")
    arrows = {kind: {tuple(arrow) for arrow in tables.get(kind, ())} for kind in ("run", "step")}
    states: dict[int, str] = {}
    count = 0
    for entry in checks.entries:
        for hop in entry.get("hops", ()):
            kind = "run" if hop["no"] == RUN_ENTITY else "step"
            source = hop.get("from")
            if kind == "step":
                # A step's first hop leaves the state in which the run's creation put it.
                states.setdefault(hop["no"], source or "")
            if (states.get(hop["no"]) or None) != (source or None):
                checks.wrong("hop_broken", f"entry {entry['seq']}: a hop leaves {source}, which was not the state")
            if (source, hop["trigger"], hop["to"]) not in arrows[kind]:
                said = f"{source} → {hop['to']} ({hop['trigger']})"
                checks.wrong("hop_illegal", f"entry {entry['seq']}: {said} is no arrow of the {kind} table")
            states[hop["no"]] = hop["to"]
            count += 1
    if checks.entries and states.get(RUN_ENTITY) != checks.pack.manifest.get("state"):
        checks.wrong("state_wrong", "the journal does not end in the state that the manifest names")
    checks.did(f"{count} hops against the tables of the pack")


def check_payloads(checks: Checks) -> None:
    """Each payload has the digest that the journal has for it; none is missing or extra."""
    lines = checks.pack.lines("payloads.jsonl")
    stored = {}
    for line in lines:
        digest = sha256(str(line.get("text", "")).encode())
        if digest != line.get("sha256"):
            checks.wrong("payload_changed", f"{payload_name(line)} does not have its digest")
        stored[digest] = payload_name(line)
    recorded = dict(digests_of(checks.entries))
    if checks.pack.manifest.get("payloads") == "omitted":
        checks.could_not(f"{len(recorded)} payloads: they are not in this pack; the journal has their digests")
        return
    for digest in sorted(recorded.keys() - stored.keys()):
        checks.wrong("payload_missing", f"the payload of {recorded[digest]} is not in the pack, or was changed")
    for digest in sorted(stored.keys() - recorded.keys()):
        checks.wrong("payload_extra", f"the journal knows nothing of {stored[digest]}")
    checks.did(f"{len(lines)} payloads against their digests in the journal")


def check_continued(checks: Checks) -> None:
    """A flow that continued as new names the run that follows from its journal. Other runs are not in the pack."""
    run = str(checks.pack.manifest["run"])
    for cause in checks.entries[0].get("causes", ()) if checks.entries else ():
        earlier = str(cause.get("actor", "")).removeprefix("parent:")
        if cause.get("event") == "run_created" and earlier != cause.get("actor") and run[14:15] == "7":
            checks.could_not(f"that run {earlier} continues as this one: its journal is not in this pack")
    for entry in checks.entries:
        for owner in continuing(entry):
            opened = [one["no"] for one in entry["hops"] if one["trigger"] == "children_started" and one["no"] > 0]
            call = next((no for no in opened if no > 2 * len(checks.pack.json("definition.json")["steps"])), None)
            if call is None:
                continue  # the flow ended before the call could open
            named = successor_of(entry, call)
            told = [one.get("digest") for one in entry["hops"] if one["no"] == call and "digest" in one]
            if told != [sha256(f'{{"run_id":"{named}"}}'.encode())]:
                checks.wrong("successor_wrong", f"entry {entry['seq']}: the flow {owner} continues as another run")
            for line in checks.pack.lines("payloads.jsonl"):
                text = str(line.get("text", ""))
                is_output = line.get("no") == 0 and line.get("fence") and not text.startswith('{"$stepkeep.')
                if is_output and text != f'{{"continued_as":"{named}"}}':
                    checks.wrong("successor_wrong", f"{payload_name(line)} names another run than {named}")
            checks.did(f"that the flow {owner} continues as run {named}, by its journal")
            checks.could_not(f"run {named}, which goes on in the place of this one: it is not in this pack")


def continuing(entry: Doc) -> Iterator[str]:
    """The flows that continue as new in an entry of the journal."""
    for cause in entry.get("causes", ()):
        for owner, record in ((cause.get("detail") or {}).get("plan_grown") or {}).items():
            if any(call.get("kind") == "continue" for call in record.get("calls") or ()):
                yield str(owner)


def successor_of(entry: Doc, no: int) -> str:
    """The id of a successor: the moment of the call, and a hash of the run, the call and its entry."""
    place = "\0".join((entry["tenant"], entry["run_id"], str(no), str(entry["seq"])))
    drawn, moment = sha256(place.encode()), f"{entry['at'] // 1000:012x}"
    variant = f"{int(drawn[4], 16) & 3 | 8:x}"
    return f"{moment[:8]}-{moment[8:]}-7{drawn[1:4]}-{variant}{drawn[5:8]}-{drawn[8:20]}"


def check_certificate(checks: Checks) -> None:
    """The certificate speaks for the head of this journal and has no finding. Its own judgement is not repeated."""
    certificate = checks.pack.json("certificate.json")
    if certificate.get("head") != checks.pack.manifest.get("head"):
        checks.wrong("certificate_foreign", "the certificate speaks for another journal")
    elif certificate.get("ok") is not True:
        checks.wrong("certificate_refuses", "the certificate in the pack has findings")
    names = ", ".join(str(one.get("dialect")) for one in certificate.get("dialects", ()))
    checks.could_not(f"the certificate's own judgement ({names}): run `stepkeep log verify` on an exported log for it")


def check_signatures(checks: Checks, trusted: frozenset[str]) -> None:
    """Each signature is valid for the head or for the whole pack, by a key that the auditor trusts."""
    found = list(checks.pack.json(SIGNATURES).get("signatures", ())) if SIGNATURES in checks.pack.files else []
    if not found:
        said = "no signature is in the pack: a rewrite of everything, chain included, would not be found"
        (checks.could_not(said) if not trusted else checks.wrong("signature_missing", said))
        return
    manifest = checks.pack.manifest
    signed: set[str] = set()
    for one in found:
        key = str(one.get("public_key", ""))
        message = signed_message(str(one.get("over")), manifest, checks.pack.files[MANIFEST])
        if message is None or not verify_signature(unhex(key), message, unhex(one.get("signature"))):
            checks.wrong(
                "signature_invalid", f"the signature over the {one.get('over')} by key {key[:16]} is not valid"
            )
        elif trusted and key not in trusted:
            checks.wrong(
                "signature_untrusted", f"the {one.get('over')} is signed by key {key[:16]}, which is not trusted"
            )
        else:
            signed.add(str(one.get("over")))
            checks.did(f"the signature over the {one.get('over')} by key {key[:16]}")
            if not trusted:
                checks.could_not(f"whose key {key[:16]} is: compare it with the tenant's key, or give --public-key")
    if trusted and not signed:
        checks.wrong("signature_missing", "no trusted key has signed the head or the pack")


# -- people ------------------------------------------------------------------------------------------------------------
APPROVES = frozenset({"approved", "hold_approved"})
COUNTED = APPROVES | {"rejected", "rejected_tolerated", "decision_recorded"}
COMPLETES = frozenset(
    {"completion_succeeded", "completion_failed", "completion_failed_tolerated", "completion_cancelled"}
)
OPENS = frozenset({"gate_opened", "held"})
ENDED = frozenset({"succeeded", "failed", "skipped", "cancelled"})


class Opened:
    """A gate that is open: what its definition asks for, and the decisions that have counted."""

    def __init__(self, terms: Doc, activation: int, at: int, shown: str | None) -> None:
        self.terms, self.activation, self.at, self.shown = terms, activation, at, shown
        self.level = 0
        self.level_at = at
        self.ballots: list[tuple[frozenset[str], bool]] = []
        self.before: frozenset[str] = frozenset()

    @property
    def due_at(self) -> int | None:
        """When time settles or escalates it."""
        deadline = self.levels[-1].get("deadline")
        return None if deadline is None else self.level_at + int(deadline)

    @property
    def levels(self) -> list[Doc]:
        return [self.terms, *(self.terms.get("escalate") or ())][: self.level + 1]


class People:
    """Replays the decisions and completions of a journal against the definition and the people on record."""

    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        definition = checks.pack.json("definition.json")
        ordered = sorted(definition["steps"], key=lambda step: (step["order"], step["name"]))
        self.steps: list[Doc] = ordered
        self.duties: list[Doc] = list(definition.get("duties") or ())
        self.known = {line["person"]: line for line in checks.pack.lines("people.jsonl")}
        self.rows = {(one["no"], one["person"], one["at"]): one for one in checks.pack.lines("decisions.jsonl")}
        self.requesters: frozenset[str] = frozenset()
        self.open: dict[int, Opened] = {}
        self.states: dict[int, str] = {}
        self.decided: dict[str, frozenset[str]] = {}
        self.completed: dict[str, frozenset[str]] = {}
        self.count = 0

    def replay(self) -> None:
        for entry in self.checks.entries:
            for cause in entry.get("causes", ()):
                if cause["event"] == "run_created":
                    before = (cause.get("detail") or {}).get("asked_before") or ()
                    self.requesters = looks(cause["actor"], *before)
            for hop in entry.get("hops", ()):
                if 0 <= hop["no"] < len(self.steps):
                    self.hop(entry, hop, entry["causes"][hop.get("by", 0)])
                    self.states[hop["no"]] = hop["to"]
        for (no, person, _), row in self.rows.items():
            if not row.get("seen"):
                said = f"decisions.jsonl has a decision by {person} on {self.name(no)} that the journal does not have"
                self.checks.wrong("decision_extra", said)

    def name(self, no: int) -> str:
        return str(self.steps[no]["name"])

    def hop(self, entry: Doc, hop: Doc, cause: Doc) -> None:
        no, trigger = hop["no"], hop["trigger"]
        if trigger in OPENS:
            verdict = ((cause.get("detail") or {}).get("policy") or {}).get(self.name(no)) or {}
            held = verdict.get("terms") if verdict.get("effect") == "hold" and trigger == "held" else None
            terms = held or self.steps[no].get("approval") or self.steps[no].get("hold") or {}
            self.open[no] = Opened(terms, entry["seq"], entry["at"], hop.get("digest"))
            self.open[no].before = self.decided.get(self.name(no), frozenset())
        elif trigger == "escalated" and no in self.open:
            self.open[no].level += 1
            self.open[no].level_at = entry["at"]
        elif trigger == "changes_requested" and no in self.open:
            self.sent_back(entry, hop, cause, self.open[no])
        elif trigger in COUNTED and no in self.open:
            self.decision(entry, hop, cause, self.open[no])
        elif trigger in COMPLETES:
            names = looks(cause["actor"], (cause.get("detail") or {}).get("for"))
            self.separation(no, names, settles=True, roles=self.roles_of(cause["actor"], entry["at"]))
            self.completed[self.name(no)] = self.completed.get(self.name(no), frozenset()) | names

    def decision(self, entry: Doc, hop: Doc, cause: Doc, gate: Opened) -> None:
        """One decision: it is on record, it counts once, its person might decide, and its effect is that of a count."""
        self.count += 1
        no, detail, person = hop["no"], cause.get("detail") or {}, cause["actor"]
        if cause["event"] != "gate_decided" or detail.get("step") != self.name(no):
            self.checks.wrong("decision_missing", f"entry {entry['seq']} settles {self.name(no)} without a decision")
            return
        self.on_record(entry, no, person, detail, gate)
        subject = str(detail.get("for") or person)
        names, approves = looks(person, subject), detail.get("decision") == "approved"
        said = f"{person} on {self.name(no)} (entry {entry['seq']})"
        if gate.due_at is not None and entry["at"] >= gate.due_at:
            self.checks.wrong("decision_late", f"it came after the deadline of the gate: {said}")
        if any(before & names for before, _ in gate.ballots):
            self.checks.wrong("decision_twice", f"a second decision of one person: {said}")
        self.effect(hop, gate, approves, said)
        self.right(entry, gate, subject, frozenset({person, subject}), detail, said)
        if detail.get("service") is True or self.known.get(person, {}).get("is_service"):
            self.service(no, gate, approves, detail, said)
        for word in gate.terms.get("excluded") or ():
            if names & self.excluded(str(word)):
                self.checks.wrong("duty_broken", f"`not: {word}` rules out {said}")
        roles = self.roles_of(subject, entry["at"])
        self.separation(no, names, settles=hop["trigger"] != "decision_recorded", roles=roles)
        gate.ballots.append((names, approves))
        self.decided[self.name(no)] = self.decided.get(self.name(no), frozenset()) | names

    def sent_back(self, entry: Doc, hop: Doc, cause: Doc, gate: Opened) -> None:
        """A request for changes: its person might decide, and the decisions so far are void."""
        no, detail, person = hop["no"], cause.get("detail") or {}, cause["actor"]
        subject = str(detail.get("for") or person)
        names, said = looks(person, subject), f"{person} on {self.name(no)} (entry {entry['seq']})"
        if cause["event"] != "changes_requested" or detail.get("step") != self.name(no):
            self.checks.wrong("decision_missing", f"entry {entry['seq']} sends {self.name(no)} back without a request")
            return
        if gate.due_at is not None and entry["at"] >= gate.due_at:
            self.checks.wrong("decision_late", f"it came after the deadline of the gate: {said}")
        if any(before & names for before, _ in gate.ballots):
            self.checks.wrong("decision_twice", f"a second decision of one person: {said}")
        self.right(entry, gate, subject, frozenset({person, subject}), detail, said)
        for word in gate.terms.get("excluded") or ():
            if names & self.excluded(str(word)):
                self.checks.wrong("duty_broken", f"`not: {word}` rules out {said}")
        self.separation(no, names, settles=False, roles=self.roles_of(subject, entry["at"]))
        gate.ballots, gate.activation = [], entry["seq"]
        self.decided[self.name(no)] = gate.before

    def on_record(self, entry: Doc, no: int, person: str, detail: Doc, gate: Opened) -> None:
        row = self.rows.get((no, person, entry["at"]))
        said = f"the decision by {person} on {self.name(no)} (entry {entry['seq']})"
        if row is None:
            self.checks.wrong("decision_missing", f"{said} is not in decisions.jsonl")
            return
        row["seen"] = True
        same = (row.get("decision"), row.get("comment") or "", row.get("on_behalf_of"), row.get("activation"))
        recorded = (detail.get("decision"), detail.get("comment") or "", detail.get("for"), gate.activation)
        if same != recorded or row.get("shown_digest") != gate.shown:
            self.checks.wrong("decision_changed", f"decisions.jsonl and the journal do not agree about {said}")

    def effect(self, hop: Doc, gate: Opened, approves: bool, said: str) -> None:
        needed = int(gate.terms.get("quorum", 1) if approves else gate.terms.get("reject_on") or 1)
        count = 1 + sum(one is approves for _, one in gate.ballots)
        if (hop["trigger"] in APPROVES) != (approves and count >= needed):
            self.checks.wrong("quorum_wrong", f"decision {count} of {needed} has the effect {hop['trigger']}: {said}")

    def right(self, entry: Doc, gate: Opened, subject: str, names: frozenset[str], detail: Doc, said: str) -> None:
        """The person is an approver, or held a role or group that the gate asks for, when it had to be held."""
        levels = gate.levels
        if any(not (one.get("roles") or one.get("groups") or one.get("approvers")) for one in levels):
            return
        allowed = {
            f"{kind[:-1]}:{name}" for one in levels for kind in ("roles", "groups") for name in one.get(kind) or ()
        }
        allowed |= {f"approver:{name}" for one in levels for name in one.get("approvers") or () if name in names}
        rights = detail.get("by_right_of") or []
        if not rights or not allowed.issuperset(rights):
            self.checks.wrong("decider_not_allowed", f"the gate does not name the right of {said}")
        standing = gate.terms.get("standing") or "both"
        moments = {"both": (gate.at, entry["at"]), "opening": (gate.at,)}.get(standing, (entry["at"],))
        for right in rights:
            kind, _, name = str(right).partition(":")
            if kind != "approver" and not all(self.holds(subject, kind, name, at) for at in moments):
                self.checks.wrong("role_not_held", f"people.jsonl does not give {subject} the {kind} {name}: {said}")

    def holds(self, person: str, kind: str, name: str, at: int) -> bool:
        found = self.known.get(person, {}).get("memberships", ())
        return any(one["kind"] == kind and one["name"] == name and counts(one, at) for one in found)

    def roles_of(self, person: str, at: int) -> frozenset[str]:
        found = self.known.get(person, {}).get("memberships", ())
        return frozenset(one["name"] for one in found if one["kind"] == "role" and counts(one, at))

    def excluded(self, word: str) -> frozenset[str]:
        duty, _, step = word.partition(":")
        if word == "requester":
            return self.requesters
        if step and duty in ("decided", "completed"):
            return (self.decided if duty == "decided" else self.completed).get(step, frozenset())
        if step and duty == "executed":
            self.checks.could_not(f"`not: {word}`: the journal does not tell which person owned a worker")
            return frozenset()
        return looks(word)

    def service(self, no: int, gate: Opened, approves: bool, detail: Doc, said: str) -> None:
        """A service is no person: it decides in its own name, where one decision of a named approver is enough."""
        needed = int(gate.terms.get("quorum", 1) if approves else gate.terms.get("reject_on") or 1)
        eyes = any(rule["kind"] == "four_eyes" and self.name(no) in rule["gates"] for rule in self.duties)
        is_named = all(str(right).startswith("approver:") for right in detail.get("by_right_of") or [""])
        if needed > 1 or eyes or not is_named or detail.get("for"):
            self.checks.wrong("decider_not_allowed", f"a service counts as no person: {said}")

    def separation(self, no: int, names: frozenset[str], *, settles: bool, roles: frozenset[str]) -> None:
        """The duties of the whole run."""
        name = self.name(no)
        for rule in self.duties:
            kind, among = rule["kind"], list(rule.get("gates") or rule.get("steps") or ())
            if kind == "requires_role":
                broken = rule["step"] == name and rule["role"] not in roles
            elif name not in among:
                continue
            elif kind == "four_eyes":
                broken = settles and self.alone(name, among, names)
            else:
                done = [self.decided.get(one, frozenset()) for one in among if one != name]
                if kind == "incompatible":
                    done += [self.completed.get(one, frozenset()) for one in among if one != name]
                broken = any(names & one for one in done)
            if broken:
                self.checks.wrong("duty_broken", f"`{kind}` rules out {min(names)} on {name}")

    def alone(self, name: str, gates: list[str], names: frozenset[str]) -> bool:
        numbers = {step["name"]: no for no, step in enumerate(self.steps)}
        if any(self.states.get(numbers[gate]) not in ENDED for gate in gates if gate != name):
            return False
        before = frozenset[str]().union(*(self.decided.get(gate, frozenset()) for gate in gates))
        return bool(before) and not before - names


LOOK_ALIKE = str.maketrans(
    "аеорсухіјѕһԁԛԝвкмнтαενικορτυχωγβηζı",
    "aeopcyxijshdqwbkmhtaevikoptuxwybnzi",
)


def looks(*names: str | None) -> frozenset[str]:
    """These names as a reader sees them: without case, Unicode forms and look-alike letters. Equal ones are one
    person."""
    found = set()
    for name in filter(None, names):
        plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
        found.add(unicodedata.normalize("NFKC", plain.translate(LOOK_ALIKE)))
    return frozenset(found)


def counts(membership: Doc, at: int) -> bool:
    """Whether a membership holds at a moment: within its dates, and within the times at which it was on record."""
    begins = max(membership["granted_at"], membership.get("valid_from") or 0)
    ends = (membership.get("valid_to"), membership.get("revoked_at"))
    return begins <= at and all(end is None or at < end for end in ends)


def check_people(checks: Checks) -> None:
    """Every decision is on record, counts once, and is by a person who might decide."""
    people = People(checks)
    people.replay()
    checks.did(f"{people.count} decisions of people against the definition, the record and the memberships")


def check_shown(checks: Checks) -> None:
    """What each gate showed has the digest that its opening has in the journal."""
    shown = {(one["no"], one["activation"]): str(one["shown"]) for one in checks.pack.lines("gates.jsonl")}
    openings = {
        (hop["no"], entry["seq"]): hop.get("digest")
        for entry in checks.entries
        for hop in entry.get("hops", ())
        if hop["trigger"] in OPENS
    }
    for place in sorted(openings.keys() | shown.keys()):
        text = shown.get(place)
        if text is None or openings.get(place) != sha256(text.encode()):
            said = f"what the gate of step number {place[0]} showed (entry {place[1]}) is missing or was changed"
            checks.wrong("shown_changed", said)
    checks.did(f"what {len(openings)} gates showed against their digests in the journal")


# -- policies ----------------------------------------------------------------------------------------------------------
EFFECTS = ("allow", "hold", "deny")
"""The effects of a verdict, from the mildest to the strictest."""

EXCEEDED = {"stop": "deny", "hold": "hold", "warn": "allow"}
CANNOT_EVALUATE = "cannot_evaluate"
GOES_ON = frozenset({"dependencies_met", "gate_opened", "wait_opened", "retry_due"})
DENIED = frozenset({"denied", "denied_tolerated"})


Value = Callable[[], Any]


class CannotReplay(Exception):
    """An expression that this script cannot read, or facts that are not in the pack."""


class Unknown(Exception):
    """An expression that has no value on these facts: a field is missing, or types do not fit."""


class Policies:
    """Replays the verdicts of a journal: the revision on record, its rules, the facts on record."""

    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        self.definition = checks.pack.json("definition.json")
        self.steps = sorted(self.definition["steps"], key=lambda step: (step["order"], step["name"]))
        lines = checks.pack.lines("policy.jsonl")
        self.listed = {(one["entry"], one["step"]): one for one in lines if one.get("kind") == "verdict"}
        self.revisions = {one["revision"]: self.revision(one) for one in lines if one.get("kind") == "revision"}
        self.pinned = origin_of(checks.entries).get("policy_revision")
        self.count = 0

    def revision(self, line: Doc) -> Doc | None:
        text = str(line.get("document", ""))
        if sha256(text.encode()) != line.get("digest"):
            self.checks.wrong(
                "policy_changed", f"revision {line.get('revision')} of the policy does not have its digest"
            )
            return None
        return dict(json.loads(text))

    def replay(self) -> None:
        seen = set()
        for entry in self.checks.entries:
            for place, cause in enumerate(entry.get("causes", ())):
                for step, record in ((cause.get("detail") or {}).get("policy") or {}).items():
                    seen.add((entry["seq"], step))
                    self.verdict(entry, place, step, record)
        for seq, step in sorted(self.listed.keys() - seen):
            said = f"policy.jsonl has a verdict on {step} (entry {seq}) that the journal does not have"
            self.checks.wrong("verdict_extra", said)

    def verdict(self, entry: Doc, place: int, step: str, record: Doc) -> None:
        self.count += 1
        said = f"the verdict on {step} (entry {entry['seq']})"
        line = self.listed.get((entry["seq"], step))
        if line is None:
            self.checks.wrong("verdict_missing", f"{said} is not in policy.jsonl")
        elif line.get("verdict") != record:
            self.checks.wrong("verdict_changed", f"policy.jsonl and the journal do not agree about {said}")
        if record.get("by") == "parent":
            self.above(said, record)
            self.obeyed(entry, place, step, record, said)
            return
        if self.pinned is not None and record.get("revision") != self.pinned:
            self.checks.wrong("verdict_wrong", f"{said} is by another revision than {self.pinned}, the pinned one")
        self.obeyed(entry, place, step, record, said)
        try:
            effect, rule = self.judged(step, record)
        except CannotReplay as problem:
            self.checks.could_not(f"{said}: {problem}")
            return
        if (effect, rule) != (record.get("effect"), record.get("rule")):
            told = f"{record.get('effect')} by {record.get('rule')}"
            self.checks.wrong("verdict_wrong", f"{said} is {told}, but the rules say {effect} by {rule}")

    def above(self, said: str, record: Doc) -> None:
        """A spent budget of a run above denies a step of a child. What that run had spent is not in this pack."""
        creators = [str(cause.get("actor")) for entry in self.checks.entries[:1] for cause in entry["causes"][:1]]
        is_child = any(creator.startswith("parent:") for creator in creators)
        is_budget = record.get("effect") == "deny" and str(record.get("rule")).startswith("budget:")
        numbers: list[Any] = [record.get("spent"), record.get("limit")]
        is_spent = all(type(one) in (int, float) for one in numbers) and numbers[0] >= numbers[1]
        if not (is_child and is_budget and is_spent and record.get("run")):
            self.checks.wrong("verdict_wrong", f"{said} is by a run above, but that is no spent budget of a parent")
        self.checks.could_not(f"{said}: what run {record.get('run')} above had spent is not in this pack")

    def obeyed(self, entry: Doc, place: int, step: str, record: Doc, said: str) -> None:
        """The step did what the verdict says: a denied one failed, a held one waits for people."""
        numbers = [no for no, one in enumerate(self.steps) if one["name"] == step]
        hops = [hop for hop in entry.get("hops", ()) if hop["no"] in numbers and hop.get("by", 0) == place]
        triggers = {hop["trigger"] for hop in hops}
        is_work = any(self.steps[no].get("executor") is not None for no in numbers)
        wanted = {"deny": DENIED, "hold": frozenset({"held"})}.get(str(record.get("effect")), GOES_ON | {"held"})
        if record.get("effect") == "hold" and (record.get("permitted") or not is_work):
            wanted = GOES_ON
        if not triggers & wanted:
            self.checks.wrong("verdict_ignored", f"{said} is {record.get('effect')}, and the step did not follow it")

    def judged(self, step: str, record: Doc) -> tuple[str, str | None]:
        facts = self.facts(step, record)
        groups = [list(self.definition.get("policy") or ())]
        own = self.definition.get("budget") or {}
        groups.append([limit_rule(f"budget:{name}", f"cost.{name}", limit, own) for name, limit in limits_of(own)])
        if (number := record.get("revision")) is not None:
            document = self.revisions.get(number)
            if document is None:
                raise CannotReplay(f"revision {number} of the policy is not in the pack")
            groups.append(list(document.get("rules") or ()))
            for budget in document.get("budgets") or ():
                name = budget["name"]
                for unit, limit in limits_of(budget):
                    rule = limit_rule(f"budget:{name}:{unit}", f'spend["{name}"].{unit}', limit, budget)
                    groups.append([rule | {"workflows": budget.get("workflows") or ()}])
        verdicts = [self.first(group, step, facts) for group in groups]
        return max(verdicts, key=lambda one: (EFFECTS.index(one[0]), one[1] is not None))

    def first(self, rules: list[Doc], step: str, facts: Doc) -> tuple[str, str | None]:
        """The first rule of a document that concerns the step and holds."""
        for rule in rules:
            names = ((rule.get("workflows"), self.definition["name"]), (rule.get("steps"), step))
            if not all(not patterns or any(fnmatchcase(name, one) for one in patterns) for patterns, name in names):
                continue
            try:
                holds = rule.get("when") is None or evaluate(str(rule["when"]), facts)
            except Unknown:
                return "deny", CANNOT_EVALUATE
            if not isinstance(holds, bool):
                return "deny", CANNOT_EVALUATE
            if holds:
                return str(rule["then"]), str(rule["name"])
        return "allow", None

    def facts(self, step: str, record: Doc) -> Doc:
        facts = dict(record.get("facts") or {})
        given = [one for one in self.checks.pack.lines("payloads.jsonl") if one.get("no") is None]
        if given and str(given[0].get("text", "")).lstrip()[:1] in tuple('{["tfn-0123456789'):
            facts["input"] = parsed("payloads.jsonl", str(given[0]["text"]).encode())
        return facts


def limits_of(budget: Doc) -> list[tuple[str, float]]:
    return list((budget.get("limits") or {}).items())


def limit_rule(name: str, read: str, limit: float, budget: Doc) -> Doc:
    """The rule of one limit of a budget."""
    return {"name": name, "when": f"{read} >= {limit!r}", "then": EXCEEDED[budget.get("on_exceeded", "stop")]}


def check_policies(checks: Checks) -> None:
    """Every verdict of a policy is on record, is what its rules say on the facts on record, and was followed."""
    policies = Policies(checks)
    policies.replay()
    checks.did(f"{policies.count} verdicts of policies against their rules and the hops that follow")


# -- expressions of rules ----------------------------------------------------------------------------------------------
# The part of CEL that rules use most: literals, fields, comparisons, `in`, `&&`, `||`, `!`, sums, has() and size().
TOKEN = re.compile(
    r"""\s*(?:(\d+\.\d+(?:[eE][-+]?\d+)?|\d+)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|([A-Za-z_]\w*)|(&&|\|\||[=!<>]=|[-+*/%<>!?:.,()\[\]]))"""
)
LEVELS = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">=", "in"), ("+", "-"), ("*", "/", "%"))
WORDS = {"true": True, "false": False, "null": None}


def evaluate(source: str, facts: Doc) -> Any:
    """The value of an expression; Unknown without one, CannotReplay if it uses more of CEL than this script reads."""
    reader = Reader(source, facts)
    found = reader.ternary()
    if reader.place != len(reader.tokens):
        raise CannotReplay(f"`{source}` is not read by this script")
    return found()


class Reader:
    """Reads an expression into functions without arguments, so that `&&` and `||` may leave one out."""

    def __init__(self, source: str, facts: Doc) -> None:
        self.source, self.facts, self.place = source, facts, 0
        self.tokens: list[tuple[str, str]] = []
        position = 0
        while source[position:].strip():
            found = TOKEN.match(source, position)
            if found is None:
                raise CannotReplay(f"`{source}` is not read by this script")
            kind = ("number", "text", "word", "mark")[(found.lastindex or 1) - 1]
            self.tokens.append((kind, found[found.lastindex or 1]))
            position = found.end()

    def take(self, *marks: str) -> str | None:
        if self.place < len(self.tokens) and self.tokens[self.place][1] in marks and self.kind() != "text":
            self.place += 1
            return self.tokens[self.place - 1][1]
        return None

    def kind(self) -> str:
        return self.tokens[self.place][0] if self.place < len(self.tokens) else ""

    def need(self, mark: str) -> None:
        if self.take(mark) is None:
            raise CannotReplay(f"`{self.source}` is not read by this script")

    def ternary(self) -> Value:
        condition = self.binary(0)
        if self.take("?") is None:
            return condition
        yes = self.ternary()
        self.need(":")
        no = self.ternary()
        return lambda: yes() if truth(condition()) else no()

    def binary(self, level: int) -> Value:
        if level == len(LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while (mark := self.take(*LEVELS[level])) is not None:
            left = combined(mark, left, self.binary(level + 1))
        return left

    def unary(self) -> Value:
        if self.take("!"):
            inner = self.unary()
            return lambda: not truth(inner())
        if self.take("-"):
            number = self.unary()
            return lambda: arithmetic("-", 0, number())
        return self.member(self.primary())

    def primary(self) -> Value:
        kind = self.kind()
        if self.take("("):
            inner = self.ternary()
            self.need(")")
            return inner
        if self.take("["):
            items = self.arguments("]")
            return lambda: [item() for item in items]
        if kind not in ("number", "text", "word"):
            raise CannotReplay(f"`{self.source}` is not read by this script")
        text = self.tokens[self.place][1]
        self.place += 1
        if kind == "number":
            number = float(text) if "." in text or "e" in text.lower() else int(text)
            return lambda: number
        if kind == "text":
            if "\\" in text:
                raise CannotReplay(f"`{self.source}` is not read by this script")
            return lambda: text[1:-1]
        if self.take("("):
            return self.call(text, self.arguments(")"))
        if text in WORDS:
            return lambda: WORDS[text]
        return lambda: field(self.facts, text)

    def arguments(self, end: str) -> list[Value]:
        found: list[Value] = []
        while self.take(end) is None:
            found.append(self.ternary())
            if self.take(",") is None:
                self.need(end)
                break
        return found

    def call(self, name: str, given: list[Value]) -> Value:
        if name == "size" and len(given) == 1:
            return lambda: sized(given[0]())
        if name == "has" and len(given) == 1:
            return lambda: is_there(given[0])
        raise CannotReplay(f"`{self.source}` calls {name}, which this script does not know")

    def member(self, value: Value) -> Value:
        while True:
            if self.take("."):
                if self.kind() != "word":
                    raise CannotReplay(f"`{self.source}` is not read by this script")
                name = self.tokens[self.place][1]
                self.place += 1
                value = self.method(value, name) if self.take("(") else selected(value, name)
            elif self.take("["):
                index = self.ternary()
                self.need("]")
                value = indexed(value, index)
            else:
                return value

    def method(self, value: Value, name: str) -> Value:
        given = self.arguments(")")
        if name == "size" and not given:
            return lambda: sized(value())
        if name not in ("startsWith", "endsWith", "contains") or len(given) != 1:
            raise CannotReplay(f"`{self.source}` calls {name}, which this script does not know")
        return lambda: texts(name, value(), given[0]())


def selected(value: Value, name: str) -> Value:
    return lambda: field(value(), name)


def indexed(value: Value, index: Value) -> Value:
    return lambda: field(value(), index())


def field(value: Any, name: Any) -> Any:
    try:
        return value[name]
    except (KeyError, IndexError, TypeError):
        raise Unknown(f"there is no {name}") from None


def is_there(value: Value) -> bool:
    try:
        value()
    except Unknown:
        return False
    return True


def truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unknown("not true or false")
    return value


def sized(value: Any) -> int:
    if not isinstance(value, str | list | dict):
        raise Unknown("it has no size")
    return len(value)


def texts(name: str, value: Any, given: Any) -> bool:
    if not isinstance(value, str) or not isinstance(given, str):
        raise Unknown("not a text")
    if name == "contains":
        return given in value
    return value.startswith(given) if name == "startsWith" else value.endswith(given)


def combined(mark: str, left: Value, right: Value) -> Value:
    if mark in ("&&", "||"):
        return lambda: logical(mark == "||", left, right)
    return lambda: compared(mark, left(), right())


def logical(decides: bool, left: Value, right: Value) -> bool:
    """One side that decides is enough, also if the other has no value."""
    try:
        if truth(left()) is decides:
            return decides
    except Unknown:
        if truth(right()) is decides:
            return decides
        raise
    return truth(right())


def compared(mark: str, left: Any, right: Any) -> Any:
    if mark == "==":
        return same_kind(left, right) and left == right
    if mark == "!=":
        return not (same_kind(left, right) and left == right)
    if mark == "in":
        if not isinstance(right, list | dict):
            raise Unknown("not a list")
        return any(same_kind(left, one) and left == one for one in right)
    if mark in "+-*/%":
        return arithmetic(mark, left, right)
    if not same_kind(left, right) or not isinstance(left, int | float | str) or isinstance(left, bool):
        raise Unknown("these cannot be compared")
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[mark]


def same_kind(left: Any, right: Any) -> bool:
    numbers = (int, float)
    both = (
        isinstance(left, numbers) and isinstance(right, numbers) and type(left) is not bool and type(right) is not bool
    )
    return both or type(left) is type(right)


def arithmetic(mark: str, left: Any, right: Any) -> Any:
    if (type(left) is not type(right) and left != 0) or not isinstance(left, int | float) or isinstance(left, bool):
        raise CannotReplay("this script does not know this arithmetic")
    if mark in "/%":
        raise CannotReplay("this script does not divide")
    return left + right if mark == "+" else left - right if mark == "-" else left * right


CHECKS: tuple[Callable[[Checks], None], ...] = (
    check_files,
    check_chain,
    check_definition,
    check_arrows,
    check_payloads,
    check_continued,
    check_shown,
    check_people,
    check_policies,
    check_certificate,
)


def verify(pack: Pack, trusted: frozenset[str] = frozenset()) -> Report:
    """Run every check on a pack. `trusted` are public keys in hex that the auditor has from another source."""
    checks = Checks(pack)
    for check in CHECKS:
        guarded(checks, check)
    guarded(checks, lambda one: check_signatures(one, trusted))
    return Report(str(pack.manifest.get("run")), checks.findings, checks.checked, checks.unchecked)


def guarded(checks: Checks, check: Callable[[Checks], None]) -> None:
    """Run one check; a file that has not the expected shape is a finding, and the other checks go on."""
    try:
        check(checks)
    except UnreadablePack as problem:
        checks.wrong("file_unreadable", str(problem))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as problem:
        checks.wrong("file_unreadable", f"a file has not the expected shape ({type(problem).__name__}: {problem})")


def origin_of(entries: list[Doc]) -> Doc:
    """What the journal says about the run's creation."""
    for cause in entries[0].get("causes", ()) if entries else ():
        if cause.get("event") == "run_created":
            return dict(cause.get("detail") or {})
    return {}


def digests_of(entries: list[Doc]) -> Iterator[tuple[str, str]]:
    """Each digest of a payload in the journal, with the name of what it belongs to."""
    given = origin_of(entries).get("input")
    if given is not None:
        yield given, "the input of the run"
    for entry in entries:
        for hop in entry.get("hops", ()):
            if hop.get("digest") is not None and hop["trigger"] not in OPENS:
                yield hop["digest"], f"step number {hop['no']} (entry {entry['seq']})"
        for cause in entry.get("causes", ()):
            if cause.get("event") == "checkpoint_recorded":
                told = cause["detail"]
                yield told["digest"], f"checkpoint {told['checkpoint']} of step {told['step']}"


def payload_name(line: Doc) -> str:
    if line.get("checkpoint") is not None:
        return f"checkpoint {line['checkpoint']} of step number {line['no']}"
    return "the input of the run" if line.get("no") is None else f"the output of step number {line['no']}"


def signed_message(over: str, manifest: Doc, manifest_bytes: bytes) -> bytes | None:
    """The bytes that a signature covers; None for a kind of signature that this version does not know."""
    if over == "head":
        return head_message(manifest["tenant"], manifest["run"], manifest["entries"], manifest["head"])
    return pack_message(manifest_bytes) if over == "pack" else None


def head_message(tenant: str, run: str, entries: int, head: str) -> bytes:
    """What is signed for a finished run: its name and the end of its journal."""
    return HEAD_CONTEXT + json.dumps([tenant, run, entries, head], separators=(",", ":")).encode()


def pack_message(manifest: bytes) -> bytes:
    """What is signed for a pack: the digest of its manifest, which has the digests of all other files."""
    return PACK_CONTEXT + sha256(manifest).encode()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def unhex(text: object) -> bytes:
    try:
        return bytes.fromhex(str(text))
    except ValueError:
        return b""


# -- Ed25519 (RFC 8032) ------------------------------------------------------------------------------------------------
# Points are in extended homogeneous coordinates (X, Y, Z, T) with x = X/Z, y = Y/Z, x * y = T/Z.
PRIME = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, PRIME) % PRIME
SQRT_MINUS_ONE = pow(2, (PRIME - 1) // 4, PRIME)

Point = tuple[int, int, int, int]
NEUTRAL: Point = (0, 1, 1, 0)


def add(p: Point, q: Point) -> Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % PRIME, (p[1] + p[0]) * (q[1] + q[0]) % PRIME
    c, d = 2 * p[3] * q[3] * D % PRIME, 2 * p[2] * q[2] % PRIME
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % PRIME, g * h % PRIME, f * g % PRIME, e * h % PRIME)


def multiply(scalar: int, point: Point) -> Point:
    total = NEUTRAL
    while scalar:
        if scalar & 1:
            total = add(total, point)
        point, scalar = add(point, point), scalar >> 1
    return total


def same_point(p: Point, q: Point) -> bool:
    return (p[0] * q[2] - q[0] * p[2]) % PRIME == 0 and (p[1] * q[2] - q[1] * p[2]) % PRIME == 0


def x_of(y: int, odd: bool) -> int | None:
    """The x coordinate with this parity of the point with this y; None if there is no such point."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, PRIME) % PRIME
    x = pow(square, (PRIME + 3) // 8, PRIME)
    if (x * x - square) % PRIME:
        x = x * SQRT_MINUS_ONE % PRIME
    if (x * x - square) % PRIME or (x == 0 and odd):
        return None
    return PRIME - x if (x & 1) != odd else x


def decode_point(text: bytes) -> Point | None:
    number = int.from_bytes(text, "little")
    y, odd = number & (2**255 - 1), bool(number >> 255)
    x = x_of(y, odd) if y < PRIME else None
    return None if x is None else (x, y, 1, x * y % PRIME)


def encode_point(point: Point) -> bytes:
    inverse = pow(point[2], -1, PRIME)
    x, y = point[0] * inverse % PRIME, point[1] * inverse % PRIME
    return (y | (x & 1) << 255).to_bytes(32, "little")


BASE_Y = 4 * pow(5, -1, PRIME) % PRIME
BASE_X = x_of(BASE_Y, odd=False) or 0
BASE: Point = (BASE_X, BASE_Y, 1, BASE_X * BASE_Y % PRIME)


def challenge(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % ORDER


def verify_signature(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether this is the Ed25519 signature over the message by the holder of this public key."""
    if len(public) != 32 or len(signature) != 64:
        return False
    key, commitment = decode_point(public), decode_point(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or scalar >= ORDER or same_point(multiply(8, key), NEUTRAL):
        return False
    right = add(commitment, multiply(challenge(signature[:32], public, message), key))
    return same_point(multiply(scalar, BASE), right)


# -- the command -------------------------------------------------------------------------------------------------------
def trusted_keys(given: list[str]) -> frozenset[str]:
    """Public keys in hex, given as such or as files that hold one."""
    keys = set()
    for one in given:
        text = one
        if len(unhex(one)) != 32:
            try:
                with open(one, encoding="ascii") as file:
                    text = file.read().strip()
            except (OSError, ValueError) as problem:
                raise UnreadablePack(f"{one} is neither a public key in hex nor a readable file: {problem}") from None
        if len(unhex(text)) != 32:
            raise UnreadablePack(f"{one} holds no public key: 64 hex digits are expected")
        keys.add(text.lower())
    return frozenset(keys)


def page(report: Report) -> Iterator[str]:
    """The report as text."""
    for finding in report.findings:
        yield f"FINDING  {finding.rule}: {finding.message}"
    for sentence in report.checked:
        yield f"checked  {sentence}"
    for sentence in report.unchecked:
        yield f"not checked  {sentence}"
    verdict = "no findings" if report.ok else f"{len(report.findings)} finding(s): this pack must not be relied on"
    yield f"run {report.run}: {verdict}"


def as_json(report: Report) -> Doc:
    """The report as one JSON object."""
    findings = [one._asdict() for one in report.findings]
    return {"ok": report.ok, **report._asdict(), "findings": findings}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Verify an evidence pack of one Stepkeep run.")
    parser.add_argument("pack", help="the archive (.zip)")
    parser.add_argument(
        "--public-key",
        action="append",
        default=[],
        metavar="KEY",
        help="a public key that you trust: 64 hex digits, or a file that holds them; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    try:
        report = verify(read_pack(given.pack), trusted_keys(given.public_key))
    except UnreadablePack as problem:
        sys.stderr.write(f"{given.pack}: {problem}\n")
        return 2
    lines = [json.dumps(as_json(report))] if given.json else page(report)
    sys.stdout.writelines(line.encode("ascii", "backslashreplace").decode() + "\n" for line in lines)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
