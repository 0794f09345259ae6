"""Verifies an evidence pack of Stepkeep with the standard library alone: `python verify.py PACK.zip`.

A pack holds a copy of this file. An auditor who does not trust the pack takes the file from another source: it is the
same in every pack of one version. The script reads one archive, writes nothing but its report, and contacts no system.
It prints each finding with its name, and what it could not check. Exit status: 0 without findings, 1 with findings, and
2 if the archive cannot be read.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import IO, Any, NamedTuple

from stepkeep.conformance.people import (
    ASKED,
    COMPLETES,
    COUNTED,
    OPENS,
    REASSIGNED,
    SENT_BACK,
    PersonAct,
    PersonRecord,
    Problem,
    RunPeople,
    duty_of,
    gate_of,
    own_decision,
)  # fmt: skip
from stepkeep.conformance.policies import (
    CANNOT_EVALUATE,
    EFFECTS,
    EXCEEDED,
    JUDGED,
    Concerned,
    check_pin,
    check_verdict,
    kind_of,
    opening_of,
    permit_of,
    rules_about,
    terms_of,
    verdict_in,
)  # fmt: skip
from stepkeep.evidence.ed25519 import verify_signature
from stepkeep.evidence.register import Register, counts, is_over, may_name, ordered
from stepkeep.evidence.rules import CannotReplay, Unknown, evaluate

FORMAT, FIRST_FORMAT = "stepkeep-evidence/2", "stepkeep-evidence/1"
MANIFEST, SIGNATURES = "manifest.json", "signature.json"
FILES = (
    "certificate.json",
    "decisions.jsonl",
    "definition.json",
    "gates.jsonl",
    "journal.jsonl",
    "machines.json",
    "payloads.jsonl",
    "people.jsonl",
    "policy.jsonl",
    "verify.py",
)
"""The files that a manifest lists."""
PEOPLE = "people_journal.jsonl"
"""Another one of them, and what the manifest says about it. A pack of the first format has none."""
PEOPLE_KEYS = ("people_entries", "people_head")
KEYS = ("entries", "files", "format", "head", "payloads", "run", "state", "tenant", "version", "workflow")
"""What a manifest says."""
MIB = 1024 * 1024
MOST_BYTES = 512 * MIB
"""The largest size of all files of a pack together, unpacked. A larger archive is refused."""
STREAMED = frozenset({"payloads.jsonl", PEOPLE, "verify.py"})
"""Files that are read line by line, or only hashed: memory holds one line of them."""
MOST_IN_MEMORY = 64 * MIB
"""The largest size of all other files together: their content is held in memory, which takes up to 20 times as much."""
MOST_LINE = 160 * MIB
"""The longest line: the largest payload, with every character escaped."""
MOST_LINES = 2_000_000
MOST_DIRECTORY = MIB
"""The largest list of members in an archive. A pack has a dozen."""
MOST_FINDINGS = 1_000

HEAD_CONTEXT, PACK_CONTEXT = b"stepkeep-head/1\n", b"stepkeep-pack/1\n"
RUN_ENTITY = -1
"""The number that a hop of the run itself has in the journal; steps are numbered from 0."""

Doc = dict[str, Any]


class PackFinding(NamedTuple):
    """One thing that is wrong: the name of the broken rule, and a sentence that says where."""

    rule: str
    message: str


class PackReport(NamedTuple):
    """The result: findings, what was checked (with counts), and what could not be checked."""

    run: str
    findings: list[PackFinding]
    checked: list[str]
    unchecked: list[str]

    @property
    def ok(self) -> bool:
        return not self.findings


class UnreadablePack(Exception):
    """The file is no evidence pack, or too large to be one."""


# -- reading -----------------------------------------------------------------------------------------------------------
class Member(NamedTuple):
    """A file that stays in its archive until it is read."""

    archive: zipfile.ZipFile
    name: str
    size: int


class Pack:
    """The files of a pack by name: in memory, or in an archive from which they are read piece by piece."""

    def __init__(self, files: Mapping[str, bytes | Member]) -> None:
        self.files = files
        held = sum(self.size(name) for name in files if name not in STREAMED)
        if held > MOST_IN_MEMORY:
            raise UnreadablePack(f"its files, payloads left out, have {held:,} bytes; at most {MOST_IN_MEMORY:,} fit")
        self.manifest: Doc = self.json(MANIFEST)
        if self.manifest.get("format") not in (FORMAT, FIRST_FORMAT):
            raise UnreadablePack(f"{MANIFEST} does not say that this is a pack of the format {FORMAT}")
        self.has_people = self.manifest["format"] != FIRST_FORMAT

    def size(self, name: str) -> int:
        found = self.files[name]
        return found.size if isinstance(found, Member) else len(found)

    def open(self, name: str) -> IO[bytes]:
        found = self.files.get(name, b"")
        return found.archive.open(found.name) if isinstance(found, Member) else io.BytesIO(found)

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            return file.read()

    def digest(self, name: str) -> str:
        found = hashlib.sha256()
        with self.open(name) as file:
            while piece := file.read(MIB):
                found.update(piece)
        return found.hexdigest()

    def json(self, name: str) -> Doc:
        found = parsed(name, self.read(name))
        if not isinstance(found, dict):
            raise UnreadablePack(f"{name} does not hold a JSON object")
        return found

    def raw_lines(self, name: str) -> Iterator[bytes]:
        """The lines of a file, one at a time. Every line ends, and none is empty."""
        with self.open(name) as file:
            for count, line in enumerate(iter(lambda: file.readline(MOST_LINE + 1), b""), 1):
                if not line.endswith(b"\n") or not line.strip() or count > MOST_LINES:
                    raise UnreadablePack(f"{name} does not hold one JSON object per line (line {count})")
                yield line

    def lines(self, name: str) -> Iterator[Doc]:
        for line in self.raw_lines(name):
            found = parsed(name, line)
            if not isinstance(found, dict):
                raise UnreadablePack(f"{name} does not hold one JSON object per line")
            yield found

    def payloads(self) -> Iterator[Doc]:
        """The lines of payloads.jsonl. Each ends in its text, which is read as text alone, whatever is in it."""
        for line in self.raw_lines("payloads.jsonl"):
            before, mark, rest = line.decode(errors="replace").rstrip("\n").partition('"text":')
            try:
                text, end = json.JSONDecoder().raw_decode(rest) if rest.startswith('"') else ("", 0)
            except ValueError:
                text, end = "", 0
            if len(before) > 4096 or rest[end:] != "}":
                raise UnreadablePack("payloads.jsonl does not hold one payload per line")
            yield {**parsed("payloads.jsonl", f'{before}{mark}""}}'.encode()), "text": text}


def parsed(name: str, text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise UnreadablePack(f"{name} is not JSON: {problem}") from None


def read_pack(path: str) -> Pack:
    """Open an archive. Its members are never written to disk, and are read when they are checked."""
    try:
        check_directory(path)
        archive = zipfile.ZipFile(path)
        members = archive.infolist()
        if sum(member.file_size for member in members) > MOST_BYTES:
            raise UnreadablePack(f"{path} would unpack to more than {MOST_BYTES:,} bytes")
        names = [member.filename for member in members]
        if len(set(names)) != len(names):
            raise UnreadablePack(f"{path} holds two files of one name")
        if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
            raise UnreadablePack(f"{path} is compressed in a way that no pack is")
        return Pack({one.filename: Member(archive, one.filename, one.file_size) for one in members})
    except UNREADABLE as problem:
        raise UnreadablePack(f"{path} cannot be read: {problem}") from None


UNREADABLE = (OSError, zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError)
"""What an archive that is none, is damaged or is encrypted raises, also in the middle of a file."""


def check_directory(path: str) -> None:
    """Refuse an archive with a long list of members before it is read into memory."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        file.seek(max(0, size - 65_557))
        tail = file.read()
    ends = [found.start() for found in re.finditer(b"PK\\x05\\x06", tail)]
    if any(int.from_bytes(tail[at + 12 : at + 16], "little") > MOST_DIRECTORY for at in ends) or b"PK\x06\x07" in tail:
        raise UnreadablePack(f"{path} lists more files than a pack has")


# -- checking ----------------------------------------------------------------------------------------------------------
class Checks:
    """Collects findings while the checks run one after the other."""

    def __init__(self, pack: Pack) -> None:
        self.pack = pack
        self.findings: list[PackFinding] = []
        self.checked: list[str] = []
        self.unchecked: list[str] = []
        self.entries: list[Doc] = []
        self.register: Register | None = None

    def wrong(self, rule: str, message: str) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(PackFinding(rule, message))

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
        if checks.pack.digest(name) != listed[name]:
            checks.wrong("file_changed", f"{name} does not have the digest that the manifest has for it")
    checks.did(f"{len(listed)} files against the manifest")


def check_manifest(checks: Checks) -> None:
    """The manifest says what the files say, and nothing else."""
    manifest, definition = checks.pack.manifest, checks.pack.json("definition.json")
    has_payloads = checks.pack.size("payloads.jsonl") > 0 if "payloads.jsonl" in checks.pack.files else False
    expected = {
        "workflow": definition.get("name"),
        "version": definition.get("version"),
        "payloads": "included" if has_payloads else "omitted",
    }
    for name, value in expected.items():
        if manifest.get(name) != value:
            checks.wrong("manifest_wrong", f"the manifest says {name} {manifest.get(name)!r}, the files say {value!r}")
    keys, files = (KEYS + PEOPLE_KEYS, (*FILES, PEOPLE)) if checks.pack.has_people else (KEYS, FILES)
    if sorted(manifest) != sorted(keys) or sorted(manifest["files"]) != sorted(files):
        checks.wrong("manifest_wrong", "the manifest has other parts, or lists other files, than a pack has")
    checks.did(f"{len(manifest)} parts of the manifest")


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
    if not checks.entries or (head.hex(), len(checks.entries)) != (manifest.get("head"), manifest.get("entries")):
        checks.wrong("journal_head", "the journal does not end at the head that the manifest names")
    checks.did(f"the hash chain over {len(checks.entries)} entries of the journal")


def check_definition(checks: Checks) -> None:
    """The definition is the one that the journal was begun with."""
    recorded = origin_of(checks.entries).get("definition")
    if recorded is None:
        checks.could_not("the definition: the journal of this run is from a version that recorded no digest of it")
    elif checks.pack.digest("definition.json") != recorded:
        checks.wrong("definition_changed", "definition.json is not the definition that the run was created from")
    else:
        checks.did("the definition against its digest in the journal")


class StepPositions:
    """The steps of a run by number: those of the definition, and elements, calls and added steps as the journal plans
    them. 0 to n-1 are the main steps, n to 2n-1 their undo steps, 2n is the final check; then follow segments."""

    def __init__(self, checks: Checks) -> None:
        definition = checks.pack.json("definition.json")
        self.steps: list[Doc] = sorted(definition["steps"], key=lambda step: (step["order"], step["name"]))
        self.segments: list[tuple[int, int, Doc]] = []
        self.called: dict[int, Doc] = {}
        first = 2 * len(self.steps) + 1
        for step in self.steps:
            if growth := step.get("growth"):
                self.segments.append((first, int(growth["max"]), step))
                first += 2 * int(growth["max"])
        for entry in checks.entries:
            self.learn(entry)

    def learn(self, entry: Doc) -> None:
        """The calls of flows and the steps that handlers added, which an entry plans in the order of their record."""
        told: dict[tuple[int, str], Iterator[Doc]] = {}
        for hop in entry["hops"]:
            found = self.element(hop["no"]) if hop["trigger"] == "planned" else None
            if found is not None and found[0]["growth"]["kind"] in ("flow", "then"):
                by, owner = hop.get("by", 0), found[0]["name"]
                grown = (entry["causes"][by].get("detail") or {}).get("plan_grown") or {}
                calls = told.setdefault((by, owner), iter((grown.get(owner) or {}).get("calls") or ()))
                self.called[hop["no"]] = next(calls, {}).get("step") or {}

    def element(self, no: int) -> tuple[Doc, int] | None:
        """The owner and the index of an element; None for every other number, those of undo steps included."""
        found = [(step, no - first) for first, width, step in self.segments if first <= no < first + width]
        return found[0] if found else None

    def get(self, no: int) -> Doc | None:
        """What is known of a main step or an element, with the name that the journal has for it; None for others.

        `rules` is the name by which policies know it."""
        if 0 <= no < len(self.steps):
            return {**self.steps[no], "rules": self.steps[no]["name"]}
        found = self.element(no)
        if found is None:
            return None
        owner, index = found
        growth = owner["growth"]
        own = self.called.get(no, {}) if growth["kind"] in ("flow", "then") else {**owner, "hold": None}
        if growth.get("cases"):
            own = growth["cases"][index]["step"]
        return {**own, "name": f"{owner['name']}[{index}]", "rules": own.get("name", owner["name"])}

    def name(self, no: int) -> str:
        found = self.get(no)
        return f"step number {no}" if found is None else str(found["name"])

    def number(self, name: str) -> int | None:
        """The number of a main step or an element by its name."""
        for no, step in enumerate(self.steps):
            if step["name"] == name:
                return no
        owner, _, index = name.removesuffix("]").rpartition("[")
        places = [first + int(index) for first, _, step in self.segments if step["name"] == owner and index.isdecimal()]
        return places[0] if places else None


TABLES = (
    "d427c6e683e207992606e84adec72023a8dbddeb53e6210c06c7bec418fe115e",
    "8d7b3430820cbee5dda0b4417bcf869db1c08773309d9ceb18d465e4186f5405",
    "795f2381a4bc9265531a1731be46856277429f1814ed35409f9051927c1196be",
    "68ca5376a725aacd60927a45d2406f949efe5206476f6b09f4ba0e5526139de7",
)
"""The digests of machines.json, of this version and of earlier ones: the rules that a journal is checked by."""


def check_arrows(checks: Checks) -> None:
    """Each hop continues from the state before it, and is an arrow of the tables in the pack."""
    tables = checks.pack.json("machines.json")
    if checks.pack.digest("machines.json") not in TABLES:
        checks.wrong("machines_unknown", "machines.json has other tables than the versions that this script knows")
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
    """Each payload has the digest that the journal has for it at its place; none is missing or extra."""
    stored: dict[Place, str] = {}
    for line in checks.pack.payloads():
        digest = sha256(line["text"].encode(errors="surrogatepass"))
        if digest != line.get("sha256"):
            checks.wrong("payload_changed", f"{payload_name(line)} does not have its digest")
        stored[line.get("no"), line.get("checkpoint"), digest] = payload_name(line)
    recorded = dict(digests_of(checks.entries))
    if checks.pack.manifest.get("payloads") == "omitted":
        checks.could_not(f"{len(recorded)} payloads: they are not in this pack; the journal has their digests")
        return
    for place in sorted(recorded.keys() - stored.keys(), key=str):
        checks.wrong("payload_missing", f"the payload of {recorded[place]} is not in the pack, or was changed")
    for place in sorted(stored.keys() - recorded.keys(), key=str):
        checks.wrong("payload_extra", f"the journal knows nothing of {stored[place]}")
    checks.did(f"{len(stored)} payloads against their digests in the journal")


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
            for line in checks.pack.payloads():
                text = line["text"]
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
    certificate, manifest = checks.pack.json("certificate.json"), checks.pack.manifest
    published = certificate.get("definition") or {}
    told = [certificate.get(name) for name in ("head", "run", "state", "entries")]
    told += [published.get(name) for name in ("name", "version", "digest")]
    expected = [manifest.get(name) for name in ("head", "run", "state", "entries", "workflow", "version")]
    if told != [*expected, checks.pack.digest("definition.json")]:
        checks.wrong("certificate_foreign", "the certificate speaks for another journal, run or definition")
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
        message = signed_message(str(one.get("over")), manifest, checks.pack.read(MANIFEST))
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
ACTS = frozenset(
    {
        *("gate_decided", "changes_requested", "escalation_requested", "gate_reassigned"),
        *("step_decided", "hold_decided", "completion_signalled"),
    }
)
"""Events by which a person decides, completes, or asks something of a gate."""


class OnRecord(PersonRecord):
    """The memberships and accounts in people.jsonl."""

    def __init__(self, lines: Iterator[Doc]) -> None:
        self.known = {line["person"]: line for line in lines}

    def holds(self, person: str, kind: str, name: str, at: int) -> bool:
        found = self.known.get(person, {}).get("memberships", ())
        return any(one["kind"] == kind and one["name"] == name and counts(one, at) for one in found)

    def is_service(self, person: str) -> bool:
        return bool(self.known.get(person, {}).get("is_service"))


class Decisions:
    """Replays the decisions and completions of a journal against the definition and the people on record."""

    def __init__(self, checks: Checks) -> None:
        self.checks, self.places = checks, StepPositions(checks)
        self.record = OnRecord(checks.pack.lines("people.jsonl"))
        lines = list(checks.pack.lines("decisions.jsonl"))
        self.rows = {(one["no"], one["activation"], one["person"]): one for one in lines}
        if len(self.rows) < len(lines):
            checks.wrong("decision_extra", "decisions.jsonl has two decisions of one person on one opening of a gate")
        self.states: dict[str, str] = {}
        self.gates = {step["name"]: gate_of(terms) for step in self.places.steps if (terms := gate_in(step))}
        duties = map(duty_of, checks.pack.json("definition.json").get("duties") or ())
        self.people = RunPeople(duties, self.gates, lambda name: self.states.get(name, ""), self.record)
        told = origin_of(checks.entries).get("continues") or {}
        self.deadlines: Doc = (told.get("deadlines") or {}) if told.get("as") == "migrate" else {}
        self.activations: dict[str, tuple[int, str | None]] = {}
        """By gate: the entry that opened it, and the digest of what it showed."""
        self.told: dict[str, list[Doc]] = {}
        self.count = 0
        self.seen: set[tuple[int, int, str]] = set()

    def wrong(self, problems: Iterable[Problem]) -> None:
        for rule, said in problems:
            self.checks.wrong(rule, said)

    def replay(self) -> None:
        for entry in self.checks.entries:
            for cause in entry.get("causes", ()):
                self.cause(entry, cause, cause.get("detail") or {})
            for hop in entry.get("hops", ()):
                if (step := self.places.get(hop["no"])) is not None:
                    self.hop(entry, hop, entry["causes"][hop.get("by", 0)], step)
                    self.states[step["name"]] = hop["to"]
        for no, _, person in self.rows.keys() - self.seen:
            said = f"decisions.jsonl has a decision by {person} on {self.places.name(no)}"
            self.checks.wrong("decision_extra", f"{said} that the journal does not have")
        for gate, rule in self.gates.items():
            for word in rule.excluded:
                if word.startswith("executed:") and word.partition(":")[2] in self.people.unowned:
                    said = f"`not: {word}` of {gate}: the journal does not tell which person owned a worker of this run"
                    self.checks.could_not(said)

    def cause(self, entry: Doc, cause: Doc, detail: Doc) -> None:
        event, actor = cause["event"], cause["actor"]
        self.people.ask(event, actor, detail)
        if event in ACTS:
            self.act(entry, cause, detail)
        told = detail.get("continues") or {}
        for item in told.get("adopted") or ():
            persons = item.get("persons") or {}
            self.people.carry(str(item["step"]), persons)
            if told.get("as") != "rollback" and own_decision(actor, persons):
                self.checks.wrong("duty_broken", f"{actor} asks for a run that adopts their own decision")
        if event == "child_ended":
            self.people.carry(str(detail.get("step")), detail.get("persons") or {})
        if event == "duty_violated":
            name = str(detail.get("step"))
            opened = self.people.open.get(name)
            act = PersonAct(name, event, "", "", event, actor, detail, entry["seq"], entry["at"])
            self.wrong(self.people.violated(act, self.gates.get(name) if opened is None else opened.rule))

    def act(self, entry: Doc, cause: Doc, detail: Doc) -> None:
        """A person acts: the account, the key and the delegation counted at that moment."""
        person, subject, at, register = cause["actor"], detail.get("for"), entry["at"], self.checks.register
        said = f"{person} (entry {entry['seq']}, {cause['event']})"
        for name in {person, subject} - {None}:
            if name not in self.record.known:
                self.checks.wrong("people_missing", f"people.jsonl does not have {name}: {said}")
        if register is None:
            return
        if register.is_absent(person, at):
            self.checks.wrong("decider_not_allowed", f"the account was disabled: {said}")
        key = register.tables["keys"].get(str(detail.get("key")))
        if "key" in detail and not (key is not None and is_over(key, at) is False and may_name(key, person)):
            self.checks.wrong("key_not_held", f"the key {detail['key']} did not stand for {said}")
        if "key" not in detail and register.needs_key(at):
            self.checks.wrong("key_not_held", f"the tenant refused names without a key: {said}")
        lent = register.tables["delegations"].get(str(detail.get("delegation")))
        if subject is not None and not (
            lent is not None and (lent["delegator"], lent["delegate"]) == (subject, person) and counts(lent, at)
        ):
            self.checks.wrong("delegation_not_held", f"no delegation of {subject} was in force for {said}")

    def hop(self, entry: Doc, hop: Doc, cause: Doc, step: Doc) -> None:
        name, trigger, detail = step["name"], hop["trigger"], cause.get("detail") or {}
        states = hop.get("from") or "", hop["to"]
        act = PersonAct(name, trigger, *states, cause["event"], cause["actor"], detail, entry["seq"], entry["at"])
        if not self.is_asked_for(act):
            said = f"entry {entry['seq']}: {name} is {trigger} without a decision or a request"
            self.checks.wrong("decision_missing", said)
            return
        terms = terms_of(verdict_in(detail, name)) if trigger == "held" else None
        kept = self.deadlines.get(name) if entry["seq"] == 1 else None
        gate = self.people.open.get(name)
        self.wrong(self.people.hop(act, gate_of(terms or gate_in(step)), kept))
        if trigger in OPENS:
            self.activations[name], self.told[name] = (entry["seq"], hop.get("digest")), []
        elif gate is not None and trigger == SENT_BACK:
            self.activations[name], self.told[name] = (entry["seq"], self.activations[name][1]), []
        elif gate is not None and trigger in COUNTED and cause["event"] != REASSIGNED:
            self.decision(act, hop)

    def is_asked_for(self, act: PersonAct) -> bool:
        """Whether the cause of an act on an open gate names it, as its trigger needs it."""
        if act.step not in self.people.open or (act.trigger == "escalated" and act.event == "time_came"):
            return True
        named = act.detail.get("step") == act.step
        if act.event == REASSIGNED:
            return named and bool(act.detail.get("to")) is (act.trigger == "reassigned")
        wanted = {"escalated": ASKED, SENT_BACK: SENT_BACK, **dict.fromkeys(COUNTED, "gate_decided")}.get(act.trigger)
        return wanted is None or (named and act.event == wanted)

    def decision(self, act: PersonAct, hop: Doc) -> None:
        """A decision is in decisions.jsonl, and the output of an approved gate is the decision itself."""
        self.count += 1
        detail, (activation, shown) = act.detail, self.activations[act.step]
        place = (hop["no"], activation, act.actor)
        row = self.rows.get(place)
        if row is None:
            self.checks.wrong("decision_missing", f"this decision is not in decisions.jsonl: {act.said}")
        else:
            self.seen.add(place)
            recorded = decision_row(dict(detail)) | {"at": act.at, "shown_digest": shown}
            evidence = row.get("evidence")
            told = row | {"evidence": None if evidence is None else sha256(compact(evidence))}
            if wrong := sorted(name for name, value in recorded.items() if told.get(name) != value):
                said = f"decisions.jsonl and the journal do not agree about {act.said}: {', '.join(wrong)}"
                self.checks.wrong("decision_changed", said)
        lent = {"for": detail["for"]} if detail.get("for") else {}
        self.told[act.step].append({"by": act.actor, "decision": detail.get("decision"), "at": act.at, **lent})
        if act.trigger == "approved" and hop.get("digest") != sha256(compact(self.output(act))):
            self.checks.wrong("output_wrong", f"the output of the gate is not the decision of {act.said}")

    def output(self, act: PersonAct) -> Doc:
        """What an approved gate has as its output: it names the people that the journal names."""
        told, detail = self.told[act.step], act.detail
        found = {**told[-1], "comment": "", **{name: detail[name] for name in OF_OUTPUT if name in detail}}
        found |= {"votes": told} if len(told) > 1 else {}
        return {name: found[name] for name in ("decision", "by", "at", *OF_OUTPUT, "votes") if name in found}


OF_OUTPUT = ("comment", "for", "by_right_of", "delegation", "key", "service", "level")


def gate_in(step: Doc) -> Doc:
    """The gate of a step in its definition."""
    return step.get("approval") or step.get("hold") or {}


def decision_row(detail: Doc) -> Doc:
    """A decision of the journal with the names that decisions.jsonl has for its parts."""
    return {
        "decision": detail.get("decision"),
        "comment": detail.get("comment") or "",
        "on_behalf_of": detail.get("for"),
        "level": detail.get("level") or 0,
        "held_roles": detail.get("by_right_of") or [],
        "delegation_id": detail.get("delegation"),
        "key_id": detail.get("key"),
        "vouched_by": detail.get("vouched_by"),
        "evidence": detail.get("evidence"),
    }


def compact(value: Any) -> bytes:
    """A value as the engine encodes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def check_register(checks: Checks) -> None:
    """The journal of people is whole, and people.jsonl says what follows from it."""
    if not checks.pack.has_people:
        checks.could_not("the memberships of people: this pack is of a version that had no journal of people in it")
        return
    register, manifest = Register(), checks.pack.manifest
    for line in checks.pack.lines(PEOPLE):
        if wrong := register.add(line.get("seq"), str(line.get("body", "")).encode(), str(line.get("hash"))):
            checks.wrong("people_journal_changed", wrong)
            return
    if (register.entries, register.head.hex()) != (manifest.get("people_entries"), manifest.get("people_head")):
        checks.wrong("people_journal_changed", "the journal of people does not end where the manifest says")
    lines = list(checks.pack.lines("people.jsonl"))
    for line in lines:
        told = line | {"memberships": ordered(line["memberships"])}
        told["delegations"] = ordered(one | {"memberships": ordered(one["memberships"])} for one in line["delegations"])
        if told != register.authority(line["person"]):
            said = f"people.jsonl has other roles, delegations or settings of {line['person']}"
            checks.wrong("people_changed", f"{said} than the journal of people")
    if len({line["person"] for line in lines}) < len(lines):
        checks.wrong("people_changed", "people.jsonl has one person twice")
    checks.register = register
    checks.did(f"the memberships of {len(lines)} people against {register.entries} entries of the journal of people")


def check_people(checks: Checks) -> None:
    """Every decision is on record, counts once, and is by a person who might decide."""
    decisions = Decisions(checks)
    decisions.replay()
    checks.did(f"{decisions.count} decisions of people against the definition, the record and the memberships")


def check_shown(checks: Checks) -> None:
    """Each opening of a gate is on record as the journal has it: when, at which level, what it showed, how it ended."""
    rows = {(one["no"], one["activation"]): one for one in checks.pack.lines("gates.jsonl")}
    openings: dict[tuple[int, int], Doc] = {}
    last: dict[int, Doc] = {}
    for entry in checks.entries:
        for hop in entry.get("hops", ()):
            gate, at = last.get(hop["no"]), entry["at"]
            if gate is not None and (hop["trigger"] == SENT_BACK or hop.get("from") != hop["to"]):
                gate |= {"closed_at": at, "outcome": hop["trigger"]}
                del last[hop["no"]]
            if hop["trigger"] in OPENS or (hop["trigger"] == SENT_BACK and gate is not None):
                # A request for changes opens the gate anew, and shows the same again.
                before = gate if hop["trigger"] == SENT_BACK and gate is not None else {"level": 0}
                shown = before.get("shown_digest", hop.get("digest"))
                opened = {"opened_at": at, "level": before["level"], "shown_digest": shown}
                openings[hop["no"], entry["seq"]] = last[hop["no"]] = {**opened, "closed_at": None, "outcome": None}
            elif hop["trigger"] == "escalated" and gate is not None:
                gate["level"] += 1
    for place in sorted(openings.keys() | rows.keys()):
        row, opening = rows.get(place, {}), openings.get(place)
        said = f"the gate of step number {place[0]} (entry {place[1]})"
        if opening is None or sha256(str(row.get("shown", "")).encode()) != opening["shown_digest"]:
            checks.wrong("shown_changed", f"what was shown by {said} is missing or was changed")
        elif wrong := sorted(name for name, value in opening.items() if row.get(name) != value):
            checks.wrong("gate_changed", f"gates.jsonl and the journal do not agree about {said}: {', '.join(wrong)}")
    checks.did(f"{len(openings)} openings of gates, and what they showed, against the journal")


# -- policies ----------------------------------------------------------------------------------------------------------
class PolicyReplay:
    """Replays the verdicts of a journal: the revision on record, its rules, the facts on record."""

    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        self.definition = checks.pack.json("definition.json")
        self.places = StepPositions(checks)
        lines = list(checks.pack.lines("policy.jsonl"))
        self.listed: dict[tuple[int, str], list[Doc]] = {}
        for one in lines:
            if one.get("kind") == "verdict":
                self.listed.setdefault((one["entry"], one["step"]), []).append(one)
        self.revisions = {one["revision"]: self.revision(one) for one in lines if one.get("kind") == "revision"}
        self.pinned = origin_of(checks.entries).get("policy_revision")
        self.requester = next((cause["actor"] for entry in checks.entries[:1] for cause in entry["causes"][:1]), None)
        self.given = next((one["text"] for one in checks.pack.payloads() if one.get("no") is None), "")
        self.permits: dict[str, str | None] = {}
        self.answered: set[tuple[int, int, str]] = set()
        self.count = 0

    def revision(self, line: Doc) -> Doc | None:
        text = str(line.get("document", ""))
        if sha256(text.encode()) != line.get("digest"):
            self.checks.wrong(
                "policy_changed", f"revision {line.get('revision')} of the policy does not have its digest"
            )
            return None
        return dict(json.loads(text))

    def wrong(self, entry: Doc, problems: Iterable[Problem]) -> None:
        for rule, said in problems:
            self.checks.wrong(rule, f"entry {entry['seq']}: {said}")

    def replay(self) -> None:
        for entry in self.checks.entries:
            for hop in entry.get("hops", ()):
                if (step := self.places.get(hop["no"])) is not None:
                    self.hop(entry, hop, step)
            for place, cause in enumerate(entry.get("causes", ())):
                detail = cause.get("detail") or {}
                self.wrong(entry, check_pin(detail, self.pinned))
                for name, record in (detail.get("policy") or {}).items():
                    self.verdict(entry, place, name, record)
        for seq, name in sorted(place for place, left in self.listed.items() if left):
            said = f"policy.jsonl has a verdict on {name} (entry {seq}) that the journal does not have"
            self.checks.wrong("verdict_extra", said)

    def hop(self, entry: Doc, hop: Doc, step: Doc) -> None:
        """The step did what the verdict says: a denied one failed, a held one waits for people."""
        by, name, trigger = hop.get("by", 0), step["name"], hop["trigger"]
        verdict = verdict_in(entry["causes"][by].get("detail") or {}, name)
        element = self.places.element(hop["no"])
        own = step if element is None else {**step, "growth": None}
        rules = rules_about(self.definition, name if element is None else element[0]["name"])
        about = Concerned(opening_of(own), kind_of(own), rules, element is not None, self.permits.get(name))
        self.wrong(
            entry, ((rule, f"{name}: {said}") for rule, said in check_verdict(trigger, hop.get("from"), about, verdict))
        )
        if trigger in JUDGED | COMPLETES | {"children_started"}:
            self.answered.add((entry["seq"], by, name))
        if trigger == "held":
            self.permits[name] = None if verdict is None else permit_of(verdict)

    def verdict(self, entry: Doc, place: int, step: str, record: Doc) -> None:
        self.count += 1
        said = f"the verdict on {step} (entry {entry['seq']})"
        lines = self.listed.get((entry["seq"], step)) or []
        if not lines:
            self.checks.wrong("verdict_missing", f"{said} is not in policy.jsonl")
        elif lines.pop(0).get("verdict") != record:
            self.checks.wrong("verdict_changed", f"policy.jsonl and the journal do not agree about {said}")
        if (entry["seq"], place, step) not in self.answered:
            self.checks.wrong("verdict_ignored", f"{said} is {record.get('effect')}, and the step did not follow it")
        if record.get("by") == "parent":
            creator = str(self.requester)
            if not creator.startswith("parent:"):
                self.checks.wrong("verdict_wrong", f"{said} is by a run above, but no run created this one")
            self.checks.could_not(f"{said}: what run {record.get('run')} above had spent is not in this pack")
        elif record.get("by") == "agent":
            if entry["causes"][place].get("event") != "step_reported":
                self.checks.wrong("verdict_wrong", f"{said} is an agent's, but no report of an agent is its cause")
        else:
            self.evaluated(step, record, said)

    def evaluated(self, step: str, record: Doc, said: str) -> None:
        """The rules give the same verdict on the facts on record."""
        asker = ((record.get("facts") or {}).get("principal") or {}).get("name", self.requester)
        if asker != self.requester:
            self.checks.wrong("verdict_wrong", f"{said} is about a run that {asker} asked for, not {self.requester}")
        try:
            effect, rule = self.judged(step, record)
        except CannotReplay as problem:
            self.checks.could_not(f"{said}: {problem}")
            return
        if (effect, rule) != (record.get("effect"), record.get("rule")):
            told = f"{record.get('effect')} by {record.get('rule')}"
            self.checks.wrong("verdict_wrong", f"{said} is {told}, but the rules say {effect} by {rule}")

    def judged(self, step: str, record: Doc) -> tuple[str, str | None]:
        facts = self.facts(step, record)
        groups = [list(self.definition.get("policy") or ())]
        own = self.definition.get("budget") or {}
        groups.append([limit_rule(f"budget:{name}", f"cost.{name}", limit, own) for name, limit in limits_of(own)])
        if (number := record.get("revision")) is not None:
            document = self.revisions.get(number)
            if document is None:
                self.checks.wrong(
                    "policy_missing", f"revision {number} of the policy is not in the pack, or was changed"
                )
                raise CannotReplay(f"revision {number} of the policy is not in the pack")
            groups.append(list(document.get("rules") or ()))
            for budget in document.get("budgets") or ():
                name = budget["name"]
                for unit, limit in limits_of(budget):
                    rule = limit_rule(f"budget:{name}:{unit}", f'spend["{name}"].{unit}', limit, budget)
                    groups.append([rule | {"workflows": budget.get("workflows") or ()}])
        number = self.places.number(step)
        name = step if number is None else str((self.places.get(number) or {"rules": step})["rules"])
        verdicts = [self.first(group, name, facts) for group in groups]
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
        if self.given.lstrip()[:1] in tuple('{["tfn-0123456789'):
            facts["input"] = parsed("payloads.jsonl", self.given.encode())
        return facts


def limits_of(budget: Doc) -> list[tuple[str, float]]:
    return list((budget.get("limits") or {}).items())


def limit_rule(name: str, read: str, limit: float, budget: Doc) -> Doc:
    """The rule of one limit of a budget."""
    return {"name": name, "when": f"{read} >= {limit!r}", "then": EXCEEDED[budget.get("on_exceeded", "stop")]}


def check_policies(checks: Checks) -> None:
    """Every verdict of a policy is on record, is what its rules say on the facts on record, and was followed."""
    policies = PolicyReplay(checks)
    policies.replay()
    checks.did(f"{policies.count} verdicts of policies against their rules and the hops that follow")


CHECKS: tuple[Callable[[Checks], None], ...] = (
    check_files,
    check_manifest,
    check_chain,
    check_definition,
    check_arrows,
    check_payloads,
    check_continued,
    check_shown,
    check_register,
    check_people,
    check_policies,
    check_certificate,
)


def verify(pack: Pack, trusted: frozenset[str] = frozenset()) -> PackReport:
    """Run every check on a pack. `trusted` are public keys in hex that the auditor has from another source."""
    checks = Checks(pack)
    for check in CHECKS:
        guarded(checks, check)
    guarded(checks, lambda one: check_signatures(one, trusted))
    return PackReport(str(pack.manifest.get("run")), checks.findings, checks.checked, checks.unchecked)


def guarded(checks: Checks, check: Callable[[Checks], None]) -> None:
    """Run one check; a file that has not the expected shape is a finding, and the other checks go on."""
    try:
        check(checks)
    except (UnreadablePack, *UNREADABLE) as problem:
        checks.wrong("file_unreadable", str(problem))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as problem:
        checks.wrong("file_unreadable", f"a file has not the expected shape ({type(problem).__name__}: {problem})")


def origin_of(entries: list[Doc]) -> Doc:
    """What the journal says about the run's creation."""
    for cause in entries[0].get("causes", ()) if entries else ():
        if cause.get("event") == "run_created":
            return dict(cause.get("detail") or {})
    return {}


Place = tuple[int | None, str | None, str]
"""Where a payload belongs: the number of its step (None: the input of the run), its checkpoint, and its digest."""


def digests_of(entries: list[Doc]) -> Iterator[tuple[Place, str]]:
    """Each payload that the journal has the digest of, with the name of what it belongs to."""
    given = origin_of(entries).get("input")
    if given is not None:
        yield (None, None, given), "the input of the run"
    for entry in entries:
        for hop in entry.get("hops", ()):
            if hop.get("digest") is not None and hop["trigger"] not in OPENS:
                yield (hop["no"], None, hop["digest"]), f"step number {hop['no']} (entry {entry['seq']})"
        for cause in entry.get("causes", ()):
            if cause.get("event") == "checkpoint_recorded":
                told = cause["detail"]
                named = f"checkpoint {told['checkpoint']} of step {told['step']}"
                yield (told["no"], told["checkpoint"], told["digest"]), named


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


def plain(text: str) -> str:
    """A text in printable ASCII: a pack may hold what a terminal would obey."""
    return "".join(one if " " <= one <= "~" else one.encode("unicode_escape").decode() for one in text)


def page(report: PackReport) -> Iterator[str]:
    """The report as text."""
    for finding in report.findings:
        yield f"FINDING  {finding.rule}: {finding.message}"
    for sentence in report.checked:
        yield f"checked  {sentence}"
    for sentence in report.unchecked:
        yield f"not checked  {sentence}"
    verdict = "no findings" if report.ok else f"{len(report.findings)} finding(s): this pack must not be relied on"
    yield f"run {report.run}: {verdict}"


def as_json(report: PackReport) -> Doc:
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
        sys.stderr.write(plain(f"{given.pack}: {problem}") + "\n")
        return 2
    lines = [json.dumps(as_json(report))] if given.json else page(report)
    sys.stdout.writelines(plain(line) + "\n" for line in lines)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
