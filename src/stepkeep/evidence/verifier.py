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
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import IO, Any, NamedTuple

from stepkeep.edges.names import same_names

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
        self.findings: list[Finding] = []
        self.checked: list[str] = []
        self.unchecked: list[str] = []
        self.entries: list[Doc] = []
        self.register: Register | None = None

    def wrong(self, rule: str, message: str) -> None:
        if len(self.findings) < MOST_FINDINGS:
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


class Positions:
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
APPROVES = frozenset({"approved", "hold_approved"})
COUNTED = APPROVES | {"rejected", "rejected_tolerated", "decision_recorded"}
COMPLETES = frozenset(
    {"completion_succeeded", "completion_failed", "completion_failed_tolerated", "completion_cancelled"}
)
ACTS = frozenset(
    {
        *("gate_decided", "changes_requested", "escalation_requested", "gate_reassigned"),
        *("step_decided", "hold_decided", "completion_signalled"),
    }
)
"""Events by which a person decides, completes, or asks something of a gate."""
STUCK = frozenset(
    {"operator_retried", "operator_skipped", "operator_failed", "operator_failed_tolerated", "operator_completed"}
)
"""Triggers by which a person decides about a step that no attempt moves any more."""

OPENS = frozenset({"gate_opened", "held"})
SENT_BACK = "changes_requested"
REASSIGNED = "gate_reassigned"
ENDED = frozenset({"succeeded", "failed", "skipped", "cancelled"})


class Opened:
    """A gate that is open: what its definition asks for, and the decisions that have counted."""

    def __init__(self, terms: Doc, activation: int, at: int, shown: str | None) -> None:
        self.terms, self.activation, self.at, self.shown = terms, activation, at, shown
        self.level = 0
        self.level_at = at
        self.ballots: list[tuple[frozenset[str], bool]] = []
        self.told: list[Doc] = []
        self.before: tuple[frozenset[str], ...] = ()
        self.named: frozenset[str] = frozenset()

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
        self.places = Positions(checks)
        self.duties: list[Doc] = list(checks.pack.json("definition.json").get("duties") or ())
        self.known = {line["person"]: line for line in checks.pack.lines("people.jsonl")}
        lines = list(checks.pack.lines("decisions.jsonl"))
        self.rows = {(one["no"], one["activation"], one["person"]): one for one in lines}
        if len(self.rows) < len(lines):
            checks.wrong(
                "decision_extra", "decisions.jsonl has two decisions of one person about one opening of a gate"
            )
        self.requesters: frozenset[str] = frozenset()
        self.rules = 1
        self.open: dict[int, Opened] = {}
        self.states: dict[int, str] = {}
        self.decided: dict[str, tuple[frozenset[str], ...]] = {}
        self.completed: dict[str, frozenset[str]] = {}
        self.executed: dict[str, frozenset[str]] = {}
        self.unowned: set[str] = set()
        """Steps that a worker claimed whose owner the journal does not name: it has none, or the journal is older."""
        self.many: set[str] = set()
        self.count = 0
        self.seen: set[tuple[int, int, str]] = set()

    def replay(self) -> None:
        for entry in self.checks.entries:
            for cause in entry.get("causes", ()):
                detail = cause.get("detail") or {}
                before = detail.get("asked_before") or ()
                if cause["event"] == "run_created" or (cause["event"] == "run_started" and before):
                    self.requesters |= people(cause["actor"], *before)
                if cause["event"] in ACTS:
                    self.act(entry, cause, detail)
                if cause["event"] == "run_created":
                    self.rules = detail.get("duty_rules", 1)
                told = detail.get("continues") or {}
                for item in told.get("adopted") or ():
                    persons = item.get("persons") or {}
                    self.carry(str(item["step"]), persons)
                    mine = persons.get("many") or same_names([cause["actor"]], persons.get("decided") or ())
                    if mine and told.get("as") != "rollback":
                        self.checks.wrong(
                            "duty_broken", f"{cause['actor']} asks for a run that adopts their own decision"
                        )
                if cause["event"] == "child_ended":
                    self.carry(str(detail.get("step")), detail.get("persons") or {})
            for hop in entry.get("hops", ()):
                if (step := self.places.get(hop["no"])) is not None:
                    self.hop(entry, hop, entry["causes"][hop.get("by", 0)], step)
                    self.states[hop["no"]] = hop["to"]
        for place in self.rows:
            if place not in self.seen:
                no, _, person = place
                said = f"decisions.jsonl has a decision by {person} on {self.name(no)} that the journal does not have"
                self.checks.wrong("decision_extra", said)

    def act(self, entry: Doc, cause: Doc, detail: Doc) -> None:
        """A person acts: the account, the key and the delegation counted at that moment."""
        person, subject, at, register = cause["actor"], detail.get("for"), entry["at"], self.checks.register
        said = f"{person} (entry {entry['seq']}, {cause['event']})"
        for name in {person, subject} - {None}:
            if name not in self.known:
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

    def name(self, no: int) -> str:
        return self.places.name(no)

    def carry(self, name: str, persons: Doc) -> None:
        """The persons of a child or of an adopted step, which another run has on record."""
        lent = [people(*pair) for pair in persons.get("lent") or ()]
        alone = people(*(persons.get("decided") or ())).difference(*lent)
        self.decided[name] = (*self.decided.get(name, ()), *lent, *(frozenset({one}) for one in alone))
        for known, kind in ((self.completed, "completed"), (self.executed, "executed")):
            known[name] = known.get(name, frozenset()) | people(*(persons.get(kind) or ()))
        self.many |= {name} if persons.get("many") is True else set()

    def within(self, name: str) -> str:
        """The step by which the definition names this one: the owner of an element."""
        return name.rpartition("[")[0] if self.rules > 1 and name.endswith("]") else name

    def acts(self, step: str) -> list[frozenset[str]]:
        """The decisions on a step and below it, each as the names behind it."""
        return [act for name, acts in self.decided.items() if self.within(name) == step for act in acts]

    def done(self, known: dict[str, frozenset[str]], step: str) -> frozenset[str]:
        return frozenset[str]().union(*(names for name, names in known.items() if self.within(name) == step))

    def may_be_any(self, step: str) -> bool:
        return any(self.within(name) == step for name in self.many)

    def hop(self, entry: Doc, hop: Doc, cause: Doc, step: Doc) -> None:
        no, trigger = hop["no"], hop["trigger"]
        if trigger in OPENS:
            verdict = ((cause.get("detail") or {}).get("policy") or {}).get(self.name(no)) or {}
            held = verdict.get("terms") if verdict.get("effect") == "hold" and trigger == "held" else None
            terms = held or step.get("approval") or step.get("hold") or {}
            self.open[no] = Opened(terms, entry["seq"], entry["at"], hop.get("digest"))
            self.open[no].before = self.decided.get(self.name(no), ())
        elif trigger == "escalated" and no in self.open:
            if cause["event"] != "time_came":
                self.check_request(entry, hop, cause, self.open[no], "escalation_requested")
            self.open[no].level += 1
            self.open[no].level_at = entry["at"]
        elif cause["event"] == REASSIGNED and no in self.open:
            self.reassigned(entry, hop, cause, self.open[no])
        elif trigger == SENT_BACK and no in self.open:
            self.sent_back(entry, hop, cause, self.open[no])
        elif trigger in COUNTED and no in self.open:
            self.decision(entry, hop, cause, self.open[no])
        elif trigger in STUCK or (trigger == "retry_due" and cause["event"] == "step_decided"):
            names = people(cause["actor"])
            self.separation(no, names, settles=True, roles=self.roles_of(cause["actor"], entry["at"]))
            self.decided[self.name(no)] = (*self.decided.get(self.name(no), ()), names)
        elif trigger == "claimed":
            self.claim(no, (cause.get("detail") or {}).get("owner"))
        elif trigger in COMPLETES:
            names = people(cause["actor"], (cause.get("detail") or {}).get("for"))
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
        names, approves = people(person, subject), detail.get("decision") == "approved"
        said = f"{person} on {self.name(no)} (entry {entry['seq']})"
        self.admitted(entry, gate, names, said)
        self.effect(hop, gate, approves, said)
        self.right(entry, gate, subject, frozenset({person, subject}), detail, said)
        if detail.get("service") is True or self.known.get(person, {}).get("is_service"):
            self.service(no, gate, approves, detail, said)
        roles = self.roles_of(subject, entry["at"])
        self.separation(no, names, settles=hop["trigger"] != "decision_recorded", roles=roles)
        gate.ballots.append((names, approves))
        lent = {"for": detail["for"]} if detail.get("for") else {}
        gate.told.append({"by": person, "decision": detail.get("decision"), "at": entry["at"], **lent})
        if hop["trigger"] == "approved":
            self.output(entry, hop, detail, gate, said)
        self.decided[self.name(no)] = (*self.decided.get(self.name(no), ()), names)

    def sent_back(self, entry: Doc, hop: Doc, cause: Doc, gate: Opened) -> None:
        """A request for changes: the decisions so far are void."""
        self.check_request(entry, hop, cause, gate, SENT_BACK)
        gate.ballots, gate.told, gate.activation = [], [], entry["seq"]
        self.decided[self.name(hop["no"])] = gate.before

    def reassigned(self, entry: Doc, hop: Doc, cause: Doc, gate: Opened) -> None:
        """An operator, who did not ask for the run, names other approvers of a gate or fails it."""
        name, names, to = self.name(hop["no"]), people(cause["actor"]), people(*(cause["detail"].get("to") or ()))
        said = f"{cause['actor']} on {name} (entry {entry['seq']})"
        if cause["detail"].get("step") != name or bool(to) is not (hop["trigger"] == "reassigned"):
            self.checks.wrong("decision_missing", f"entry {entry['seq']}: {name} is {hop['trigger']} without a request")
        if same_names(names, self.requesters | to):
            self.checks.wrong("duty_broken", f"a requester reassigns a gate, or a person to themselves: {said}")
        gate.named |= to
        if not to:
            self.decided[name] = (*self.decided.get(name, ()), names)

    def check_request(self, entry: Doc, hop: Doc, cause: Doc, gate: Opened, event: str) -> None:
        """A request about a gate that does not decide it: its person might decide, and has not."""
        no, detail, person = hop["no"], cause.get("detail") or {}, cause["actor"]
        if cause["event"] != event or detail.get("step") != self.name(no):
            said = f"entry {entry['seq']}: {self.name(no)} is {hop['trigger']} without a request"
            self.checks.wrong("decision_missing", said)
            return
        said = f"{person} on {self.name(no)} (entry {entry['seq']})"
        subject = str(detail.get("for") or person)
        names = people(person, subject)
        self.admitted(entry, gate, names, said)
        self.right(entry, gate, subject, frozenset({person, subject}), detail, said)
        self.separation(no, names, settles=False, roles=self.roles_of(subject, entry["at"]))

    def admitted(self, entry: Doc, gate: Opened, names: frozenset[str], said: str) -> None:
        """These people are in time, have not decided, and are not ruled out by the gate."""
        if gate.due_at is not None and entry["at"] >= gate.due_at:
            self.checks.wrong("decision_late", f"it came after the deadline of the gate: {said}")
        if any(same_names(before, names) for before, _ in gate.ballots):
            self.checks.wrong("decision_twice", f"a second decision of one person: {said}")
        for word in gate.terms.get("excluded") or ():
            if same_names(names, self.excluded(str(word))) or self.may_be_any(str(word).partition(":")[2]):
                self.checks.wrong("duty_broken", f"`not: {word}` rules out {said}")

    def on_record(self, entry: Doc, no: int, person: str, detail: Doc, gate: Opened) -> None:
        place = (no, gate.activation, person)
        row = self.rows.get(place)
        said = f"the decision by {person} on {self.name(no)} (entry {entry['seq']})"
        if row is None:
            self.checks.wrong("decision_missing", f"{said} is not in decisions.jsonl")
            return
        self.seen.add(place)
        recorded = decision_row(detail) | {"at": entry["at"], "shown_digest": gate.shown}
        evidence = row.get("evidence")
        told = row | {"evidence": None if evidence is None else sha256(compact(evidence))}
        if wrong := sorted(name for name, value in recorded.items() if told.get(name) != value):
            named = ", ".join(wrong)
            self.checks.wrong("decision_changed", f"decisions.jsonl and the journal do not agree about {said}: {named}")

    def output(self, entry: Doc, hop: Doc, detail: Doc, gate: Opened, said: str) -> None:
        """The output of an approved gate is the decision itself: it names the people that the journal names."""
        names = ("comment", "for", "by_right_of", "delegation", "key", "level", "service")
        expected = {**gate.told[-1], "comment": "", **{one: detail[one] for one in names if one in detail}}
        if len(gate.told) > 1:
            expected["votes"] = gate.told
        order = (
            "decision",
            "by",
            "at",
            "comment",
            "for",
            "by_right_of",
            "delegation",
            "key",
            "service",
            "level",
            "votes",
        )
        whole = {name: expected[name] for name in order if name in expected}
        if hop.get("digest") != sha256(compact(whole)):
            self.checks.wrong("output_wrong", f"the output of the gate is not the decision of {said}")

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
        allowed |= {f"approver:{name}" for name in gate.named & names}
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
        if step and duty == "decided":
            return frozenset[str]().union(*self.acts(step))
        if step and duty == "completed":
            return self.done(self.completed, step)
        if step and duty == "executed":
            if step in self.unowned:
                said = "the journal does not tell which person owned a worker of this run"
                self.checks.could_not(f"`not: {word}`: {said}")
            return self.done(self.executed, step)
        return people(word)

    def service(self, no: int, gate: Opened, approves: bool, detail: Doc, said: str) -> None:
        """A service is no person: it decides in its own name, where one decision of a named approver is enough."""
        needed = int(gate.terms.get("quorum", 1) if approves else gate.terms.get("reject_on") or 1)
        name = self.within(self.name(no))
        eyes = any(rule["kind"] == "four_eyes" and name in rule["gates"] for rule in self.duties)
        is_named = all(str(right).startswith("approver:") for right in detail.get("by_right_of") or [""])
        if needed > 1 or eyes or not is_named or detail.get("for"):
            self.checks.wrong("decider_not_allowed", f"a service counts as no person: {said}")

    def separation(self, no: int, names: frozenset[str], *, settles: bool, roles: frozenset[str]) -> None:
        """The duties of the whole run."""
        name = self.within(self.name(no))
        for rule in self.duties:
            kind, among = rule["kind"], list(rule.get("gates") or rule.get("steps") or ())
            if kind == "requires_role":
                broken = rule["step"] == name and rule["role"] not in roles
            elif name not in among:
                continue
            elif kind == "four_eyes":
                broken = settles and self.alone(name, among, names)
            else:
                broken = self.on_another(kind, [one for one in among if one != name], names)
            if broken:
                self.checks.wrong("duty_broken", f"`{kind}` rules out {min(names)} on {name}")

    def on_another(self, kind: str, others: list[str], names: frozenset[str]) -> bool:
        """Whether one of these persons acted, or may have acted, on one of the other steps that a duty names."""
        done = [act for one in others for act in self.acts(one)]
        if kind == "incompatible":
            done += [self.done(known, one) for one in others for known in (self.completed, self.executed)]
        return any(same_names(names, one) for one in done) or any(map(self.may_be_any, others))

    def claim(self, no: int, owner: Any) -> None:
        """A worker claims a step: its owner executes it."""
        name = self.within(self.name(no))
        if not isinstance(owner, str):
            self.unowned.add(name)
            return
        names = people(owner)
        for rule in self.duties:
            among = list(rule.get("steps") or ())
            others = [one for one in among if one != name]
            if rule["kind"] == "incompatible" and name in among and self.on_another("incompatible", others, names):
                self.checks.wrong("duty_broken", f"`incompatible` rules out workers of {owner} for {name}")
        for step in self.places.steps:
            gate = step.get("approval") or step.get("hold") or {}
            decided = frozenset[str]().union(*self.acts(step["name"]))
            if f"executed:{name}" in (gate.get("excluded") or ()) and same_names(names, decided):
                self.checks.wrong("duty_broken", f"{owner} decided {step['name']}, and a worker of {owner} ran {name}")
        self.executed[self.name(no)] = self.executed.get(self.name(no), frozenset()) | names

    def alone(self, name: str, gates: list[str], names: frozenset[str]) -> bool:
        numbers = [self.places.number(gate) for gate in gates if gate != name]
        if any(no is None or self.states.get(no) not in ENDED for no in numbers):
            return False
        acts = [act for gate in gates for act in self.acts(gate)]
        if self.rules == 1:
            before = frozenset[str]().union(*acts)
            return bool(before) and len(same_names(before, names)) == len(before)
        # Two decisions are those of two people if they share no name.
        return bool(acts) and all(same_names(one, two) for one in (*acts, names) for two in (*acts, names))


def people(*names: str | None) -> frozenset[str]:
    """These names without those that are missing."""
    return frozenset(filter(None, names))


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


def counts(membership: Doc, at: int) -> bool:
    """Whether a membership holds at a moment: within its dates, and within the times at which it was on record."""
    begins, ends = max(membership["granted_at"], membership.get("valid_from") or 0), membership.get("valid_to")
    # A revocation of the same moment came after what counted: it waits for decisions that have read the membership.
    revoked_at = membership.get("revoked_at")
    return begins <= at and (ends is None or at < ends) and (revoked_at is None or at <= revoked_at)


def is_over(key: Doc, at: int) -> bool:
    """Whether a key had ended, or did not exist, at a moment."""
    ends = (key["revoked_at"] is not None and key["revoked_at"] < at, at >= (key["expires_at"] or at + 1))
    return any(ends) or at < key["created_at"]


def may_name(key: Doc, person: str) -> bool:
    return person == key["owner"] or "vouch" in (key["scopes"] or ())


# -- the journal of people ---------------------------------------------------------------------------------------------
class Register:
    """The rows of people that follow from their journal: each with the columns that its entries tell."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Doc]] = {name: {} for name in TABLES_OF_PEOPLE}
        self.absent: dict[str, list[tuple[int, int | None]]] = {}
        self.vouching: list[tuple[int, str]] = []
        self.head, self.entries = b"", 0

    def add(self, seq: Any, body: bytes, seal: str) -> str | None:
        """Add the next entry; returns what is wrong with it, if anything."""
        self.head, self.entries = hashlib.sha256(self.head + body).digest(), self.entries + 1
        entry = json.loads(body)
        if (seq, entry["seq"]) != (self.entries, self.entries):
            return f"entry {self.entries} of the journal of people is missing or out of order"
        if self.head.hex() != seal:
            return f"entry {self.entries} of the journal of people, or one before it, was changed"
        detail, by = entry.get("detail") or {}, {"at": entry["at"], "by": entry["actor"]}
        if entry["event"] in CHANGES_OF_PEOPLE:
            getattr(self, entry["event"])(str(entry["subject"]), detail, **by)
        return None

    def tenant_created(self, subject: str, detail: Doc, at: int, by: str) -> None:
        self.tables["tenants"][subject] = {"vouching": detail["vouching"]}
        self.vouching.append((at, detail["vouching"]))

    tenant_changed = tenant_created

    def user_created(self, subject: str, detail: Doc, at: int, by: str) -> None:
        made = {"created_at": at, "created_by": by, "disabled_at": None, "disabled_by": None}
        self.tables["principals"][subject] = {"name": subject, "kind": detail["kind"], **made}

    def user_disabled(self, subject: str, detail: Doc, at: int, by: str) -> None:
        self.tables["principals"][subject] |= {"disabled_at": at, "disabled_by": by}
        self.absent.setdefault(subject, []).append((at, None))
        for key in detail.get("keys") or ():
            self.end("keys", key, at, by)

    def user_enabled(self, subject: str, detail: Doc, at: int, by: str) -> None:
        self.tables["principals"][subject] |= {"disabled_at": None, "disabled_by": None}
        since, _ = self.absent[subject][-1]
        self.absent[subject][-1] = (since, at)

    def granted(self, subject: str, detail: Doc, at: int, by: str) -> None:
        kind = "role" if "role" in detail else "group"
        about = {"subject": subject, "subject_kind": detail["to"], "kind": kind, "name": detail[kind]}
        self.begin("memberships", detail, about, at, by)

    def revoked(self, subject: str, detail: Doc, at: int, by: str) -> None:
        self.end("memberships", detail["id"], at, by)

    def delegated(self, subject: str, detail: Doc, at: int, by: str) -> None:
        about = {"delegator": subject, "delegate": detail["to"], "reason": detail.get("reason") or ""}
        self.begin("delegations", detail, about, at, by)

    def undelegated(self, subject: str, detail: Doc, at: int, by: str) -> None:
        self.end("delegations", detail["id"], at, by)

    def key_created(self, subject: str, detail: Doc, at: int, by: str) -> None:
        made = {"owner": subject, "created_at": at, "created_by": by, "revoked_at": None, "revoked_by": None}
        told = {name: value for name, value in detail.items() if name not in NOT_OF_KEYS}
        self.tables["keys"][detail["id"]] = {"expires_at": None, "replaces": None, **told, **made}

    def key_rotated(self, subject: str, detail: Doc, at: int, by: str) -> None:
        old, told = self.tables["keys"][detail["replaces"]], {}
        if "secret" not in detail:  # an earlier version, in which a new key was like the old one
            ends = None if old["expires_at"] is None else at + old["expires_at"] - old["created_at"]
            told = {name: value for name, value in old.items() if name != "secret"} | {"expires_at": ends}
        self.key_created(subject, told | detail, at, by)
        old["expires_at"] = detail["old_ends_at"]

    def key_revoked(self, subject: str, detail: Doc, at: int, by: str) -> None:
        for key in (detail["id"], *(detail.get("ended") or ())):
            self.end("keys", key, at, by)

    def signed_out(self, subject: str, detail: Doc, at: int, by: str) -> None:
        for key in detail.get("ended") or ():  # the key that was made for the session
            self.end("keys", key, at, by)

    def begin(self, table: str, detail: Doc, about: Doc, at: int, by: str) -> None:
        dates = {name: detail.get(name) for name in ("valid_from", "valid_to")}
        made = {"granted_at": at, "granted_by": by, "revoked_at": None, "revoked_by": None}
        self.tables[table][detail["id"]] = {"id": detail["id"], **about, **dates, **made}

    def end(self, table: str, name: str, at: int, by: str) -> None:
        if self.tables[table][name]["revoked_at"] is None:
            self.tables[table][name] |= {"revoked_at": at, "revoked_by": by}

    # -- what follows from it ------------------------------------------------------------------------------------------
    def memberships(self, person: str) -> list[Doc]:
        """What a person was given: in their own name, and the roles of their groups while they are members."""
        rows = list(self.tables["memberships"].values())
        found = []
        for row in rows:
            if (row["subject_kind"], row["subject"]) == ("person", person):
                found.append(held(row))
                shared = [one for one in rows if (one["subject_kind"], one["subject"]) == ("group", row["name"])]
                found += [within(held(one), held(row)) for one in shared if row["kind"] == "group"]
        return found

    def standing(self, person: str) -> Doc:
        row = self.tables["principals"].get(person)
        return {
            "registered": row is not None,
            "disabled": row is not None and row["disabled_at"] is not None,
            "is_service": row is not None and row["kind"] == "service",
        }

    def authority(self, person: str) -> Doc:
        """A person as people.jsonl has it."""
        known = [self.standing(one["delegator"]) for one in self.tables["delegations"].values()]
        received = [
            {
                **{name: row[name] for name in ("id", "delegator", *DATES)},
                "memberships": ordered(self.memberships(row["delegator"])),
                "enabled": one["registered"] and not one["disabled"] and not one["is_service"],
            }
            for row, one in zip(self.tables["delegations"].values(), known, strict=True)
            if row["delegate"] == person
        ]
        return {
            "person": person,
            **self.standing(person),
            "vouching_allowed": not self.vouching or self.vouching[-1][1] != "refused",
            "memberships": ordered(self.memberships(person)),
            "delegations": ordered(received),
            "key": None,
        }

    def is_absent(self, person: str, at: int) -> bool:
        """Whether the account was disabled at a moment."""
        return any(since < at and (end is None or at < end) for since, end in self.absent.get(person, ()))

    def needs_key(self, at: int) -> bool:
        """Whether the tenant refused names without a key at a moment."""
        before = [setting for since, setting in self.vouching if since < at]
        return bool(before) and before[-1] == "refused"


CHANGES_OF_PEOPLE = frozenset(
    {
        *("tenant_created", "tenant_changed", "user_created", "user_disabled", "user_enabled"),
        *("granted", "revoked", "delegated", "undelegated"),
        *("key_created", "key_rotated", "key_revoked", "signed_out"),
    }
)
TABLES_OF_PEOPLE = ("tenants", "principals", "memberships", "delegations", "keys")
DATES = ("granted_at", "valid_from", "valid_to", "revoked_at")
NOT_OF_KEYS = frozenset({"key", "request", "address", "of_session", "old_ends_at"})
"""What entries about keys tell beside the columns of the key."""


def held(row: Doc) -> Doc:
    return {name: row[name] for name in ("kind", "name", *DATES)}


def within(role: Doc, group: Doc) -> Doc:
    """A role of a group, as its member has it: at the moments at which both hold."""

    def of_both(name: str, choose: Callable[..., int]) -> int | None:
        return choose((one[name] for one in (role, group) if one[name] is not None), default=None)

    latest = {name: of_both(name, max) for name in ("granted_at", "valid_from")}
    return role | latest | {name: of_both(name, min) for name in ("valid_to", "revoked_at")}


def ordered(values: Any) -> list[Any]:
    return sorted(values, key=lambda one: json.dumps(one, sort_keys=True))


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
    people = People(checks)
    people.replay()
    checks.did(f"{people.count} decisions of people against the definition, the record and the memberships")


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
EFFECTS = ("allow", "hold", "deny")
"""The effects of a verdict, from the mildest to the strictest."""

EXCEEDED = {"stop": "deny", "hold": "hold", "warn": "allow"}
CANNOT_EVALUATE = "cannot_evaluate"
GOES_ON = frozenset({"dependencies_met", "gate_opened", "wait_opened", "retry_due", "children_started"})
DENIED = frozenset({"denied", "denied_tolerated"})
SIGNALS = frozenset(
    {"completion_succeeded", "completion_failed", "completion_failed_tolerated", "completion_cancelled"}
)
"""Completions by people, which policies are asked about, too."""


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
        self.places = Positions(checks)
        lines = list(checks.pack.lines("policy.jsonl"))
        self.listed: dict[tuple[int, str], list[Doc]] = {}
        for one in lines:
            if one.get("kind") == "verdict":
                self.listed.setdefault((one["entry"], one["step"]), []).append(one)
        self.revisions = {one["revision"]: self.revision(one) for one in lines if one.get("kind") == "revision"}
        self.pinned = origin_of(checks.entries).get("policy_revision")
        self.requester = next((cause["actor"] for entry in checks.entries[:1] for cause in entry["causes"][:1]), None)
        self.given = next((one["text"] for one in checks.pack.payloads() if one.get("no") is None), "")
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
        for entry in self.checks.entries:
            for place, cause in enumerate(entry.get("causes", ())):
                for step, record in ((cause.get("detail") or {}).get("policy") or {}).items():
                    self.verdict(entry, place, step, record)
        for seq, step in sorted(place for place, left in self.listed.items() if left):
            said = f"policy.jsonl has a verdict on {step} (entry {seq}) that the journal does not have"
            self.checks.wrong("verdict_extra", said)

    def verdict(self, entry: Doc, place: int, step: str, record: Doc) -> None:
        self.count += 1
        said = f"the verdict on {step} (entry {entry['seq']})"
        lines = self.listed.get((entry["seq"], step)) or []
        if not lines:
            self.checks.wrong("verdict_missing", f"{said} is not in policy.jsonl")
        elif lines.pop(0).get("verdict") != record:
            self.checks.wrong("verdict_changed", f"policy.jsonl and the journal do not agree about {said}")
        if record.get("by") == "parent":
            self.above(said, record)
            self.obeyed(entry, place, step, record, said)
            return
        if record.get("by") == "agent":
            by = (record.get("effect"), record.get("rule"), entry["causes"][place].get("event"))
            if by != ("hold", "governance", "step_reported"):
                self.checks.wrong("verdict_wrong", f"{said} is an agent's, but no report of an agent is its cause")
            self.obeyed(entry, place, step, record, said)
            return
        asker = ((record.get("facts") or {}).get("principal") or {}).get("name", self.requester)
        if asker != self.requester:
            self.checks.wrong("verdict_wrong", f"{said} is about a run that {asker} asked for, not {self.requester}")
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
        number = self.places.number(step)
        known = None if number is None else self.places.get(number)
        hops = [hop for hop in entry.get("hops", ()) if hop["no"] == number and hop.get("by", 0) == place]
        triggers = {hop["trigger"] for hop in hops}
        is_work = known is not None and known.get("executor") is not None
        if triggers & SIGNALS:
            is_free = record.get("effect") == "allow" or str(record.get("rule")).startswith("budget:")
            if not is_free and not (record.get("effect") == "hold" and record.get("permitted")):
                told = f"{said} is {record.get('effect')}, and a completion was accepted"
                self.checks.wrong("verdict_ignored", told)
            return
        wanted = {"deny": DENIED, "hold": frozenset({"held"})}.get(str(record.get("effect")), GOES_ON | {"held"})
        if record.get("effect") == "hold" and record.get("permitted"):
            wanted = GOES_ON
        elif record.get("effect") == "hold" and not is_work:
            wanted = GOES_ON | {"held"}  # gates and waits open; earlier versions held no children and no choices
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


def plain(text: str) -> str:
    """A text in printable ASCII: a pack may hold what a terminal would obey."""
    return "".join(one if " " <= one <= "~" else one.encode("unicode_escape").decode() for one in text)


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
        sys.stderr.write(plain(f"{given.pack}: {problem}") + "\n")
        return 2
    lines = [json.dumps(as_json(report))] if given.json else page(report)
    sys.stdout.writelines(plain(line) + "\n" for line in lines)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
