"""Replays the journal of people: the rows that follow from it, and who held what at a moment.

Standard library alone: evidence packs ship this file. `people.py` compares the rows of a database with it, and
`verifier.py` those of a pack.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

Doc = dict[str, Any]


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
