"""Builds an evidence pack: the files about one run that an auditor needs, in one archive with a manifest.

The same run gives the same bytes, except for signatures. It reads no store: the caller passes the run as it was read in
one snapshot, its definition, its payloads and the certificate. The engine calls it.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec

from stepkeep.evidence.verifier import (
    FORMAT,
    MANIFEST,
    MOST_BYTES,
    MOST_IN_MEMORY,
    PEOPLE,
    SIGNATURES,
    STREAMED,
    sha256,
)
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.rows import Vote
from stepkeep.kernel.machine.tables import RUN, STEP, Machine
from stepkeep.kernel.people.authority import Authority
from stepkeep.store.principals import SealedPeopleEntry
from stepkeep.store.records import WholeRun

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every member of the archive: the earliest that the format can hold."""

_encode = msgspec.json.Encoder(order="sorted").encode
Lines = Sequence[Mapping[str, Any]]


class PackedPayload(msgspec.Struct, frozen=True, kw_only=True):
    """A payload of the run: its input (`no` is None), or an output or checkpoint of a step."""

    no: int | None
    fence: int | None
    text: bytes
    checkpoint: str | None = None


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What a pack is made from. `payloads` is None if they are left out on request."""

    whole: WholeRun
    definition: bytes
    certificate: Mapping[str, Any]
    payloads: Sequence[PackedPayload] | None
    people: Sequence[Authority] = ()
    people_journal: Sequence[SealedPeopleEntry] = ()
    verdicts: Lines = ()


def pack_files(contents: Contents) -> dict[str, bytes]:
    """The files of a pack by name, with the manifest over them."""
    whole, journal = contents.whole, contents.people_journal
    run = whole.record.run
    made = {
        "definition.json": contents.definition,
        "journal.jsonl": _lines(
            {"seq": one.seq, "body": one.body.decode(), "hash": one.hash.hex()} for one in whole.entries
        ),
        PEOPLE: _lines({"seq": one.seq, "body": one.body.decode(), "hash": one.hash.hex()} for one in journal),
        "gates.jsonl": _lines(_without_owner(gate) | {"shown": gate.shown.decode()} for gate in whole.gates),
        "decisions.jsonl": _lines(_vote(vote) for vote in whole.votes),
        "people.jsonl": _lines(msgspec.to_builtins(person) for person in contents.people),
        "policy.jsonl": _lines(contents.verdicts),
        "payloads.jsonl": _lines(_payload(one) for one in contents.payloads or ()),
        "certificate.json": _page(contents.certificate),
        "machines.json": _page({"run": _arrows(RUN), "step": _arrows(STEP)}),
        "verify.py": verifier_source(),
    }
    manifest = {
        "format": FORMAT,
        "tenant": run.tenant,
        "run": run.id,
        "workflow": whole.record.details.workflow,
        "version": whole.record.details.version,
        "state": run.state,
        "entries": run.seq,
        "head": run.head.hex(),
        "people_entries": len(journal),
        "people_head": journal[-1].hash.hex() if journal else "",
        "payloads": "omitted" if contents.payloads is None else "included",
        "files": {name: sha256(body) for name, body in made.items()},
    }
    return {MANIFEST: _page(manifest), **made}


def zipped(made: Mapping[str, bytes], signatures: Lines) -> bytes:
    """The archive of these files, with the signatures beside them."""
    whole = {**made, SIGNATURES: _page({"signatures": list(signatures)})}
    if (size := sum(map(len, whole.values()))) > MOST_BYTES:
        raise InvalidInput(f"the pack would have {size:,} bytes; at most {MOST_BYTES:,} fit. Leave payloads out.")
    if (size := sum(len(body) for name, body in whole.items() if name not in STREAMED)) > MOST_IN_MEMORY:
        raise InvalidInput(f"journal and record would have {size:,} bytes; at most {MOST_IN_MEMORY:,} fit in a pack.")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in whole.items():
            member = zipfile.ZipInfo(name, EPOCH)
            member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(member, body)
    return buffer.getvalue()


SHIPPED = (
    ("edges", "names"), ("conformance", "people"), ("conformance", "policies"), ("evidence", "ed25519"),
    ("evidence", "register"), ("evidence", "rules"),
)  # fmt: skip
"""The modules of which the verifier is made, each with the standard library and those before it alone."""
_OWN_IMPORTS = re.compile(r"^from stepkeep\.[^(\n]*(?:\([^)]*\).*|)\n", re.MULTILINE)


def verifier_source() -> bytes:
    """The verifier as it is shipped in every pack: one file, with its modules in place of their imports."""

    def parted(package: str, name: str) -> tuple[str, str]:
        source = files(f"stepkeep.{package}").joinpath(f"{name}.py").read_text("utf-8")
        head, mark, rest = source.partition("from __future__ import annotations\n")
        return head + mark, _OWN_IMPORTS.sub("", rest)

    head, verifier = parted("evidence", "verifier")
    return "\n\n".join([head, *(parted(*one)[1].strip() for one in SHIPPED), verifier.strip(), ""]).encode()


def _arrows(machine: Machine[Any, Any]) -> list[list[str | None]]:
    return sorted(([row.source, row.trigger, row.target] for row in machine.rows), key=json.dumps)


def _vote(vote: Vote) -> Mapping[str, object]:
    evidence = None if vote.evidence is None else msgspec.Raw(vote.evidence)
    return {**_without_owner(vote), "evidence": evidence}


def _without_owner(row: msgspec.Struct) -> dict[str, object]:
    """The fields of a row of the run, which the manifest names."""
    return {name: value for name, value in msgspec.structs.asdict(row).items() if name not in ("tenant", "run_id")}


def _payload(one: PackedPayload) -> Mapping[str, object]:
    found = {"sha256": sha256(one.text), "text": one.text.decode()}
    names = {"no": one.no, "fence": one.fence, "checkpoint": one.checkpoint}
    return found | {name: value for name, value in names.items() if value is not None}


def _lines(values: Any) -> bytes:
    return b"".join(_encode(value) + b"\n" for value in values)


def _page(value: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(_encode(value), indent=2) + b"\n"
