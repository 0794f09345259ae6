"""An evidence pack is checked with the standard library alone, and every change to it is refused by name."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import stepkeep as sk
from stepkeep.definition.expressions.expressions import Scope, compile_expression
from stepkeep.evidence import verifier
from stepkeep.evidence.signing import SigningKey, new_key, read_key, write_key
from stepkeep.evidence.verifier import MANIFEST, SIGNATURES, Pack, PackReport, verify
from stepkeep.kernel.errors import Conflict, InvalidInput

FLOW = """
workflow: refund
timeout: 1h
steps:
  - name: prepare
    uses: evidence.prepare
    with: {amount: "${{ input.amount }}"}
    effect: read
  - name: sign-off
    depends_on: [prepare]
    approval: {prompt: "Refund?"}
  - name: pay
    depends_on: [sign-off]
    uses: evidence.pay
"""
Files = dict[str, bytes]


@sk.step("evidence.prepare")
def prepare(amount: int) -> dict[str, int]:
    return {"amount": amount}


TOKENS: list[str] = []


@sk.step("evidence.order")
def order(ctx: sk.Context) -> None:
    TOKENS.append(str(ctx.completion_token))


@sk.step("evidence.pay")
def pay() -> str:
    return "paid"


class Signed(NamedTuple):
    """The pack of a finished run on one store, and the key that signed it."""

    pack: bytes
    key: SigningKey


MADE: dict[str, Signed] = {}
"""The pack of each store: made once, because no test changes the run."""


@pytest.fixture
def signed(database_url: str, tmp_path: Path) -> Signed:
    store = database_url.partition(":")[0]
    if store not in MADE:
        write_key(tmp_path / "key", new_key())
        with sk.open(database_url) as engine:
            run = finished(engine, tmp_path)
            MADE[store] = Signed(engine.evidence(run, signing_key=tmp_path / "key"), read_key(tmp_path / "key"))
    return MADE[store]


def finished(engine: sk.Engine, folder: Path) -> str:
    """A run that ann started, bo approved and a worker finished."""
    file = folder / "refund.yaml"
    file.write_text(FLOW)
    worker = engine.start_worker()
    run = engine.start(file, {"amount": 40}, by="ann").run_id
    engine.wait(run, until_blocked=True)
    with pytest.raises(Conflict, match="finished run"):
        engine.evidence(run)
    engine.approve(run, "sign-off", by="bo", comment="fine")
    assert engine.wait(run).state == "succeeded"
    worker.stop()
    return run


def test_a_true_pack_is_verified_by_its_own_script_with_the_standard_library_alone(
    signed: Signed, tmp_path: Path
) -> None:
    (tmp_path / "pack.zip").write_bytes(signed.pack)
    (tmp_path / "verify.py").write_bytes(unzipped(signed.pack)["verify.py"])
    public = signed.key.public.hex()
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(tmp_path / "verify.py"), str(tmp_path / "pack.zip"), "--public-key", public],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "no findings" in done.stdout
    assert "the signature over the head" in done.stdout
    assert "not checked" in done.stdout, "it says what it could not check"


def test_the_same_run_gives_the_same_bytes_and_a_pack_without_payloads_says_so(
    database_url: str,
    tmp_path: Path,
) -> None:
    with sk.open(database_url) as engine:
        run = finished(engine, tmp_path)
        whole, again, lean = engine.evidence(run), engine.evidence(run), unzipped(engine.evidence(run, payloads=False))
    assert whole == again
    assert set(unzipped(whole)) > {"definition.json", "journal.jsonl", "decisions.jsonl", "policy.jsonl"}
    assert lean["payloads.jsonl"] == b""
    report = verify(Pack(lean))
    assert report.ok, report.findings
    assert any("payloads" in sentence for sentence in report.unchecked)


def changed_byte(name: str, before: bytes, after: bytes) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        assert before in files[name]
        files[name] = files[name].replace(before, after)

    return change


def without(name: str) -> Callable[[Files], None]:
    return lambda files: files.pop(name) and None


ACTORS = (rb"\"actor\":\"bo\"", rb"\"actor\":\"al\"")
CHANGES: list[tuple[str, Callable[[Files], None], str]] = [
    ("a changed byte of the definition", changed_byte("definition.json", b"Refund?", b"refund?"), "definition_changed"),
    ("another actor in the journal", changed_byte("journal.jsonl", *ACTORS), "journal_changed"),
    ("another input", changed_byte("payloads.jsonl", b"40", b"41"), "payload_changed"),
    ("another certificate", changed_byte("certificate.json", b'"ok": true', b'"ok": false'), "certificate_refuses"),
    ("a missing file", without("payloads.jsonl"), "file_missing"),
    ("a file that is no JSON", lambda files: files.update({"machines.json": b"{"}), "file_unreadable"),
    ("a file of another shape", lambda files: files.update({"machines.json": b'{"run": 3}'}), "file_unreadable"),
    ("an extra file", lambda files: files.update({"more.txt": b""}), "file_extra"),
    ("the last entry cut off", lambda files: _cut(files), "journal_head"),
    ("an entry left out", lambda files: _cut(files, 2), "journal_gap"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "change", "rule"), CHANGES, ids=[name for name, _, _ in CHANGES])
@pytest.mark.parametrize("manifest_too", [False, True], ids=["the file alone", "with its digest"])
def test_every_change_is_refused_by_name(
    signed: Signed, what: str, change: Callable[[Files], None], rule: str, manifest_too: bool
) -> None:
    files = unzipped(signed.pack)
    change(files)
    if manifest_too and rule not in ("file_missing", "file_extra"):
        redigest(files)
    found = rules(verify(Pack(files)))
    assert rule in found, f"{what}: {found}"
    if manifest_too and rule not in ("file_missing", "file_extra"):
        assert "signature_invalid" in found, "the signature over the pack covers every file"
    else:
        assert {"file_changed", "file_missing", "file_extra"} & set(found)


def test_a_consistent_rewrite_is_refused_through_the_signed_head(signed: Signed) -> None:
    """Another actor, with chain, head, certificate and manifest recomputed: only a signature shows it."""
    trusted = frozenset({signed.key.public.hex()})
    files = unzipped(signed.pack)
    head_before = json.loads(files[MANIFEST])["head"]
    rename(files, "bo", "al")
    unsigned = {name: body for name, body in files.items() if name != SIGNATURES}
    alone = verify(Pack(dict(unsigned)))
    assert alone.ok, alone.findings
    assert json.loads(files[MANIFEST])["head"] != head_before
    assert any("no signature" in sentence for sentence in alone.unchecked), "it says that it could not know"
    assert rules(verify(Pack(dict(unsigned)), trusted)) == ["signature_missing"]
    assert set(rules(verify(Pack(files), trusted))) == {"signature_invalid", "signature_missing"}
    forged = new_key()
    manifest = json.loads(files[MANIFEST])
    message = verifier.head_message(manifest["tenant"], manifest["run"], manifest["entries"], manifest["head"])
    one = {"over": "head", "public_key": forged.public.hex(), "signature": forged.sign(message).hex()}
    files[SIGNATURES] = json.dumps({"signatures": [one]}).encode()
    assert set(rules(verify(Pack(files), trusted))) == {"signature_untrusted", "signature_missing"}


def test_decisions_are_replayed_and_a_wrong_one_is_refused_by_name(database_url: str, tmp_path: Path) -> None:
    """Two of finance, never the requester. Each forgery has a chain, a manifest and a certificate in order."""
    file = tmp_path / "signed.yaml"
    file.write_text(
        "workflow: signed\ntimeout: 1h\nsteps:\n"
        "  - name: sign\n"
        "    approval: {roles: [finance], quorum: 2, not: [requester], facts: {sum: '${{ input.sum }}'}}\n"
    )
    with sk.open(database_url) as engine:
        for person in ("ann", "bo", "cy"):
            engine.users.create(person)
            engine.users.grant(person, role="finance")
        run = engine.start(file, {"sum": 40}, by="dee").run_id
        for person in ("bo", "cy"):
            engine.approve(run, "sign", by=person)
        true = unzipped(engine.evidence(run))
    assert rules(verify(Pack(dict(true)))) == []
    assert b'"sum":40' in true["gates.jsonl"].replace(b"\\", b"")

    def forged(change: Callable[[Files], None]) -> list[str]:
        files = dict(true)
        change(files)
        redigest(files)
        return rules(verify(Pack(files)))

    def renamed(before: str, after: str) -> Callable[[Files], None]:
        def change(files: Files) -> None:
            rename(files, before, after)
            files["people.jsonl"] = true["people.jsonl"]

        return change

    assert "role_not_held" in forged(renamed("cy", "eve"))
    assert "duty_broken" in forged(renamed("dee", "cy")), "the requester decides"
    assert "decision_twice" in forged(renamed("cy", "bo"))
    assert "decision_twice" in forged(renamed("cy", "Bo")), "one person in two spellings"
    assert "duty_broken" in forged(renamed("dee", "CY")), "the requester in another spelling"
    services = true["people.jsonl"].replace(b'"is_service":false', b'"is_service":true')
    assert services != true["people.jsonl"]
    assert "decider_not_allowed" in forged(lambda files: files.update({"people.jsonl": services}))
    assert "decision_missing" in forged(lambda files: files.update({"decisions.jsonl": b""}))
    assert "decision_changed" in forged(
        lambda files: files.update({"decisions.jsonl": files["decisions.jsonl"].replace(b"approved", b"rejected")})
    )
    assert "role_not_held" in forged(lambda files: files.update({"people.jsonl": b""}))
    assert "shown_changed" in forged(
        lambda files: files.update({"gates.jsonl": files["gates.jsonl"].replace(b"40", b"41")})
    )

    def one_too_few(files: Files) -> None:
        document = files["definition.json"].replace(b'"quorum":2', b'"quorum":3')
        digests = sha256(files["definition.json"]).hexdigest(), sha256(document).hexdigest()
        files["definition.json"] = document
        rewrite(files, *(digest.encode() for digest in digests))

    assert "quorum_wrong" in forged(one_too_few)


def test_a_true_pack_of_a_gate_that_was_sent_back_and_escalated_is_not_refused(
    database_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "sent-back.yaml"
    file.write_text(
        "workflow: sent-back\ntimeout: 1h\nsteps:\n  - name: sign\n    approval:\n"
        "      {roles: [finance], quorum: 2, deadline: 10m, escalate: [{roles: [board], deadline: 10m}]}\n"
    )
    with sk.open(database_url) as engine:
        for person in ("ann", "bo", "cy", "dan"):
            engine.users.create(person)
            engine.users.grant(person, role="finance")
        engine.users.delegate("cy", "dan", open_ended=True)
        run = engine.start(file, by="zoe").run_id
        engine.approve(run, by="ann")
        engine.interventions.request_changes(run, comment="name the supplier", by="bo")
        engine.interventions.escalate(run, reason="late", by="ann")
        engine.interventions.request_changes(run, comment="once more", by="dan")
        for person in ("dan", "bo"):
            engine.approve(run, by=person)
        assert engine.certify(run).ok
        files = unzipped(engine.evidence(run))
    assert verify(Pack(dict(files))).findings == []
    people = {json.loads(line)["person"] for line in files["people.jsonl"].splitlines()}
    assert people >= {"ann", "bo", "dan"}, "those who asked for changes or the next level are there too"


def test_a_gate_that_closes_in_the_entry_that_opens_it_is_closed_on_record(database_url: str, tmp_path: Path) -> None:
    """A denied step beside it ends the run when it starts."""
    file = tmp_path / "denied.yaml"
    file.write_text(
        "workflow: denied\ntimeout: 1h\npolicy: [{name: never, steps: [pay], then: deny}]\nsteps:\n"
        "  - {name: ask, approval: {}}\n  - {name: pay, uses: evidence.pay, depends_on: []}\n"
    )
    with sk.open(database_url) as engine:
        run = engine.start(file, by="ann").run_id
        assert engine.approvals()["approvals"] == []
        report = verify(Pack(unzipped(engine.evidence(run))))
    assert report.findings == []
    assert "1 openings of gates, and what they showed, against the journal" in report.checked


def test_what_is_no_pack_is_an_error_and_not_a_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.zip").write_text("text")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("manifest.json", "[]")
    with zipfile.ZipFile(tmp_path / "foreign.zip", "w") as archive:
        archive.writestr("manifest.json", '{"format": "another"}')
    for name in ("text.zip", "other.zip", "foreign.zip", "absent.zip"):
        assert verifier.main([str(tmp_path / name)]) == 2
        assert name in capsys.readouterr().err


@pytest.mark.parametrize("name", ["payloads.jsonl", "people_journal.jsonl", "gates.jsonl"])
def test_a_file_of_newlines_is_refused_without_being_held_in_memory(signed: Signed, tmp_path: Path, name: str) -> None:
    """500 MB in a small archive, read by a process that may not have so much memory."""
    import resource

    path, size = tmp_path / "bomb.zip", 500_000_000 if name != "gates.jsonl" else 100_000_000
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, body in unzipped(signed.pack).items():
            if member != name:
                archive.writestr(member, body)
        with archive.open(name, "w") as file:
            for _ in range(size // 10_000_000):
                file.write(b"\n" * 10_000_000)
    done = subprocess.run(
        [sys.executable, "-m", "stepkeep.evidence.verifier", str(path)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (400_000_000, 400_000_000)),
    )
    assert done.returncode == (2 if name == "gates.jsonl" else 1), done.stderr
    assert "MemoryError" not in done.stderr
    assert "at most" in done.stderr or "does not hold one" in done.stdout


def test_an_archive_with_a_long_list_of_members_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as archive:
        for number in range(20_000):
            archive.writestr(f"a-long-name-of-a-member-{number}", b"")
    with pytest.raises(verifier.UnreadablePack, match="more files than a pack"):
        verifier.read_pack(str(tmp_path / "many.zip"))


def test_nothing_of_a_pack_reaches_a_terminal_raw(
    signed: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b]0;pwned\x07\u202e\u00e9\n"
    for place, change in enumerate(({"run": evil}, {"workflow": evil}, {"format": evil})):
        files = unzipped(signed.pack)
        redigest(files, **change)
        path = tmp_path / f"{place}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name, body in (files | {f"{evil}.txt": b""}).items():
                archive.writestr(name, body)
        for options in ([], ["--json"]):
            assert verifier.main([str(path), *options]) in (1, 2)
            shown = "".join(capsys.readouterr())
            assert all(" " <= letter <= "~" or letter == "\n" for letter in shown), shown


@pytest.mark.parametrize(
    "changed",
    [{"workflow": "other"}, {"version": 9}, {"payloads": "omitted"}, {"payloads": "some"}, {"more": 1}, {"state": "x"}],
    ids=str,
)
def test_a_manifest_that_says_something_else_than_the_files_is_refused(signed: Signed, changed: dict[str, Any]) -> None:
    files = unzipped(signed.pack)
    del files[SIGNATURES]
    redigest(files, **changed)
    assert {"manifest_wrong", "state_wrong"} & set(rules(verify(Pack(files))))


def test_a_decision_that_the_output_of_its_gate_gives_to_another_person_is_refused(signed: Signed) -> None:
    """Journal and decisions name al, chain and manifest are recomputed, and the output still names bo."""
    files = unzipped(signed.pack)
    del files[SIGNATURES]
    for name in ("decisions.jsonl", "people.jsonl"):
        files[name] = files[name].replace(b'"person":"bo"', b'"person":"al"')
    rewrite(files, b'"actor":"bo"', b'"actor":"al"')
    assert rules(verify(Pack(files))) == ["output_wrong"]


def test_the_tables_of_a_pack_are_those_that_the_script_knows(signed: Signed) -> None:
    known = verifier.TABLES
    assert sha256(unzipped(signed.pack)["machines.json"]).hexdigest() in known, "add the digest of the new tables"


def test_a_signing_key_is_never_replaced_and_is_its_owners_alone(tmp_path: Path) -> None:
    key = new_key()
    write_key(tmp_path / "key", key)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert read_key(tmp_path / "key") == key
    with pytest.raises(InvalidInput, match="never replaced"):
        write_key(tmp_path / "key", new_key())
    (tmp_path / "other").write_text("sk_live_secret")
    with pytest.raises(InvalidInput, match="holds no signing key") as refused:
        read_key(tmp_path / "other")
    assert "sk_live_secret" not in str(refused.value)


def test_a_head_that_was_signed_at_the_end_of_its_run_is_in_every_pack_and_refuses_a_rewrite(
    database_url: str, tmp_path: Path
) -> None:
    """Everything was rewritten after the end, chain, certificate and manifest included. The pack is not signed."""
    key = new_key()
    write_key(tmp_path / "heads.key", key)
    with sk.open(database_url) as engine:
        run = finished(engine, tmp_path)
        done = engine.sign_heads(tmp_path / "heads.key")
        assert (done["signed"] >= 1, done["is_complete"], done["key_id"]) == (True, True, key.id)
        assert engine.sign_heads(tmp_path / "heads.key")["signed"] == 0, "a head is signed once"
        files = unzipped(engine.evidence(run))
    trusted = frozenset({key.public.hex()})
    assert verify(Pack(dict(files)), trusted).findings == []
    rename(files, "bo", "al")
    assert set(rules(verify(Pack(dict(files)), trusted))) == {"signature_invalid", "signature_missing"}
    del files[SIGNATURES]
    assert rules(verify(Pack(files), trusted)) == ["signature_missing"]


# -- policies ----------------------------------------------------------------------------------------------------------
JUDGED = """
workflow: judged
timeout: 1h
budget: {attempts: 50}
policy:
  - {name: small, steps: [pay], when: 'has(input.amount) && input.amount <= 10', then: allow}
steps:
  - {name: prepare, uses: evidence.prepare, with: {amount: "${{ input.amount }}"}, effect: read}
  - {name: pay, uses: evidence.pay, depends_on: [prepare]}
"""


def judged_pack(url: str, folder: Path) -> Files:
    """A run whose second step a live rule held, that bo of finance approved."""
    file = folder / "judged.yaml"
    file.write_text(JUDGED)
    rule = {
        "name": "large",
        "steps": ["pay"],
        "when": 'input.amount > 10 && !("treasurer" in principal.roles) && spend.daily.usd < 5.0',
        "then": "hold",
        "approval": {"roles": ["finance"]},
    }
    with sk.open(url) as engine:
        engine.users.create("bo")
        engine.users.grant("bo", role="finance")
        engine.publish_policy(
            {"policy": "p", "rules": [rule], "budgets": [{"name": "daily", "per": "1d", "usd": 100}]}, by="root"
        )
        worker = engine.start_worker()
        run = engine.start(file, {"amount": 40}, by="ann").run_id
        engine.wait(run, until_blocked=True)
        engine.approve(run, "pay", by="bo")
        assert engine.wait(run).state == "succeeded"
        worker.stop()
        return unzipped(engine.evidence(run))


def test_verdicts_of_policies_are_replayed_and_a_wrong_one_is_refused_by_name(
    database_url: str, tmp_path: Path
) -> None:
    true = judged_pack(database_url, tmp_path)
    report = verify(Pack(dict(true)))
    assert report.findings == []
    assert "2 verdicts of policies against their rules and the hops that follow" in report.checked
    assert not [sentence for sentence in report.unchecked if "verdict" in sentence]

    def forged(change: Callable[[Files], None]) -> list[str]:
        files = dict(true)
        change(files)
        redigest(files)
        return rules(verify(Pack(files)))

    def in_journal(before: bytes, after: bytes) -> Callable[[Files], None]:
        def change(files: Files) -> None:
            rewrite(files, before, after)
            files["policy.jsonl"] = files["policy.jsonl"].replace(before, after)

        return change

    def in_policy(before: bytes, after: bytes) -> Callable[[Files], None]:
        return lambda files: files.update({"policy.jsonl": files["policy.jsonl"].replace(before, after)})

    assert "verdict_wrong" in forged(in_journal(b'"rule":"large"', b'"rule":"other"'))
    assert "verdict_wrong" in forged(in_journal(b'"roles":[]', b'"roles":["treasurer"]')), (
        "facts that give another answer"
    )
    assert "verdict_ignored" in forged(in_journal(b'"effect":"hold"', b'"effect":"deny"'))
    assert "verdict_changed" in forged(in_policy(b'"effect":"hold"', b'"effect":"deny"'))
    assert "verdict_missing" in forged(lambda files: files.update({"policy.jsonl": b""}))
    assert "policy_changed" in forged(in_policy(b"input.amount > 10", b"input.amount > 99"))
    extra = json.dumps({"kind": "verdict", "entry": 1, "step": "pay", "verdict": {"effect": "allow"}}).encode() + b"\n"
    assert "verdict_extra" in forged(lambda files: files.update({"policy.jsonl": files["policy.jsonl"] + extra}))
    assert "role_not_held" in forged(lambda files: files.update({"people.jsonl": b""})), "the terms of the policy count"
    silent = verify(Pack({**true, "payloads.jsonl": b""}))
    assert "verdict_wrong" in rules(silent), "without the input, the rule has no value"


BY_HAND = """
workflow: by-hand
timeout: 1h
policy:
  - {name: small, steps: [pay], when: 'input.amount <= 10', then: allow}
  - {name: large, steps: [pay], when: 'input.amount > 10', then: hold}
steps:
  - {name: pay, uses: evidence.order, completion: manual}
"""


def test_a_verdict_on_a_completion_by_hand_lets_it_pass(database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "by-hand.yaml"
    file.write_text(BY_HAND)
    with sk.open(database_url) as engine:
        run = engine.run(file, {"amount": 4}, by="ann").run_id
        engine.complete(run, "pay", token=TOKENS.pop(), output="paid", by="bo")
        assert engine.wait(run).state == "succeeded"
        true = unzipped(engine.evidence(run))
    report = verify(Pack(dict(true)))
    assert report.findings == []
    assert "2 verdicts of policies against their rules and the hops that follow" in report.checked
    files = dict(true)
    rewrite(files, b'"effect":"allow","rule":"small"', b'"effect":"hold","rule":"large"')
    files["policy.jsonl"] = files["policy.jsonl"].replace(b'"effect":"allow"', b'"effect":"hold"')
    redigest(files)
    assert "verdict_ignored" in rules(verify(Pack(files)))


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("a.n > 1 && a.n <= 2.0", True),
        ('"x" in a.l || a.missing.deep == 1', True),
        ("a.missing.deep == 1 || a.n == 2", True),
        ("!has(a.missing) && has(a.n)", True),
        ('size(a.l) == 1 && a.l.size() == 1 && a.l[0] == "x"', True),
        ('a["n"] + 1 == 3 && -a.n < 0 ? "yes" : "no"', "yes"),
        ('a.t.startsWith("st") && a.t.contains("ep") && a.t.endsWith("p")', True),
        ('a.n == "2"', False),
        ("a.n in [1, 2, 3] && (a.n != 3)", True),
        ("true && null == null", True),
    ],
)
def test_the_expressions_of_rules_have_the_value_that_the_engine_gives_them(source: str, value: object) -> None:
    facts = {"a": {"n": 2, "l": ["x"], "t": "step"}}
    assert verifier.evaluate(source, facts) == value
    mine = source.replace("a.", "input.").replace("a[", "input[")
    assert compile_truth_or_value(mine).evaluate({"input": facts["a"]}) == value


def compile_truth_or_value(source: str) -> Any:
    return compile_expression(source, Scope(facts={"input": None}))


@pytest.mark.parametrize("source", ["a.missing > 1", "a.n > 'x'", "a.n && true", "size(a.n) == 1"])
def test_an_expression_without_a_value_denies_there_too(source: str) -> None:
    with pytest.raises(verifier.Unknown):
        verifier.evaluate(source, {"a": {"n": 2}})


@pytest.mark.parametrize("source", ["a.l.all(x, x > 1)", "a.n / 2 == 1", "matches(a.t, 'x')", "r'raw' == a.t", "a.n >"])
def test_what_the_script_cannot_read_is_told_and_no_finding(source: str) -> None:
    with pytest.raises(verifier.CannotReplay):
        verifier.evaluate(source, {"a": {"n": 2, "l": [1], "t": "x"}})


def unzipped(pack: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(pack)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rules(report: PackReport) -> list[str]:
    return [finding.rule for finding in report.findings]


def redigest(files: Files, **changed: Any) -> None:
    """Write a manifest that has the digests of the files as they are."""
    manifest = json.loads(files[MANIFEST]) | changed
    manifest["files"] = {name: sha256(files[name]).hexdigest() for name in manifest["files"]}
    files[MANIFEST] = json.dumps(manifest).encode()


def _cut(files: Files, place: int = -1) -> None:
    lines = files["journal.jsonl"].splitlines(keepends=True)
    del lines[place]
    files["journal.jsonl"] = b"".join(lines)


def packed(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":"), sort_keys=True).encode() + b"\n"


def rename(files: Files, before: str, after: str) -> None:
    """Give what one person did to another, in every place that names them."""
    outputs = [json.loads(line) for line in files["payloads.jsonl"].splitlines()]
    texts = [(one["text"], one["text"].replace(f'"by":"{before}"', f'"by":"{after}"')) for one in outputs]
    files["payloads.jsonl"] = b"".join(
        packed(one | {"sha256": sha256(text.encode()).hexdigest(), "text": text})
        for one, (_, text) in zip(outputs, texts, strict=True)
    )
    names = f'"person":"{before}"'.encode(), f'"person":"{after}"'.encode()
    for name in ("decisions.jsonl", "people.jsonl"):
        files[name] = files[name].replace(*names)
    digests = [(sha256(old.encode()).hexdigest(), sha256(new.encode()).hexdigest()) for old, new in texts]
    rewrite(files, f'"actor":"{before}"'.encode(), f'"actor":"{after}"'.encode(), *digests)


def rewrite(files: Files, before: bytes, after: bytes, *digests: tuple[str, str]) -> None:
    """Change the journal and everything that depends on it, as a careful forger would."""
    head, lines = b"", []
    for line in files["journal.jsonl"].splitlines():
        entry = json.loads(line)
        body = entry["body"].encode().replace(before, after)
        for old, new in digests:
            body = body.replace(old.encode(), new.encode())
        head = sha256(head + body).digest()
        lines.append({"seq": entry["seq"], "body": body.decode(), "hash": head.hex()})
    files["journal.jsonl"] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    certificate = json.loads(files["certificate.json"]) | {"head": head.hex()}
    files["certificate.json"] = json.dumps(certificate).encode()
    redigest(files, head=head.hex())
