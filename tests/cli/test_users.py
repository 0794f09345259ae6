"""Users, roles, delegations, keys and tenants on the command line: what happened, what comes next, and as JSON."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import HANDLERS, Cli


def test_people_are_set_up_in_a_few_commands(cli: Cli) -> None:
    made = cli("users", "create", "ann", "--display", "Ann Lee")
    assert made.status == 0
    assert "user ann is registered" in made.out
    assert "stepkeep users grant ann --role ROLE" in made.out, "it says what comes next"
    assert cli("users", "create", "bea").status == 0
    assert cli("users", "grant", "staff", "--role", "finance", "--is-group").status == 0
    assert cli("users", "grant", "ann", "--group", "staff").status == 0
    given = cli("users", "grant", "bea", "--role", "finance", "--until", "2999-01-01")
    assert "bea has the role finance until 2999-01-01" in given.out
    shown = cli("users", "show", "ann")
    assert "Ann Lee" in shown.out
    assert "roles: finance" in shown.out
    assert cli("users", "show", "ann", "--json").json["user"]["groups"] == ["staff"]
    taken = cli("users", "revoke", "bea", "--role", "finance")
    assert "no more" in taken.out
    listed = cli("users", "list")
    assert "ann" in listed.out
    assert [one["name"] for one in cli("users", "list", "--json").json["users"]] == ["ann", "bea"]


def test_a_look_alike_name_is_refused_with_status_1(cli: Cli) -> None:
    cli("users", "create", "ann")
    said = cli("users", "create", "Ann", "--json")
    assert (said.status, said.json["error"]["code"]) == (1, "conflict")
    assert cli("users", "create", "a nn").status == 2


def test_delegations_are_made_listed_and_ended(cli: Cli) -> None:
    for name in ("ann", "bea"):
        cli("users", "create", name)
    assert cli("delegate", "ann", "bea").status == 2, "an end is asked for"
    assert cli("delegate", "ann", "bea", "--until", "2999-01-01", "--open-ended").status == 2
    made = cli("delegate", "ann", "bea", "--until", "2999-01-01", "--reason", "on leave")
    assert "bea decides on behalf of ann (on leave) until 2999-01-01" in made.out
    assert "stepkeep delegate ann bea --end" in made.out
    assert "on leave" in cli("delegate", "--list").out
    myself = cli("delegate", "ann", "ann", "--open-ended", "--json")
    assert (myself.status, myself.json["error"]["rule"]) == (1, "delegation_to_oneself")
    assert cli("delegate", "ann", "bea", "--end").status == 0
    assert cli("delegate", "--list", "--json").json == {"delegations": []}


def test_a_key_in_a_file_or_in_the_environment_says_who_acts(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cli("run", "gated.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    cli("users", "create", "ann")
    made = cli("keys", "create", "ann", "--scope", "read", "--scope", "decide", "--output", "ann.key")
    assert "sk_" not in made.out, "a key that is written to a file is not shown"
    assert stat.S_IMODE((home / "ann.key").stat().st_mode) == 0o600
    again = cli("keys", "create", "ann", "--scope", "read", "--output", "ann.key")
    assert again.status == 2, "it is never written over a file"
    assert len(cli("keys", "list", "--json").json["keys"]) == 1, "and no key is made for it"
    refused = cli("approve", run, "--by", "bea", "--key-file", "ann.key", "--json")
    assert (refused.status, refused.json["error"]["rule"]) == (1, "key_owner")
    refused = cli("cancel", run, "--key-file", "ann.key", "--json")
    assert (refused.status, refused.json["error"]["rule"]) == (1, "scope")
    monkeypatch.setenv("STEPKEEP_KEY", (home / "ann.key").read_text().strip())
    assert cli("approve", run, "--json").json["decision"]["by"] == "ann"
    assert cli("log", "export", run).status == 0


def test_a_command_beside_the_engine_needs_its_scope_too(cli: Cli) -> None:
    cli("users", "create", "ann")
    cli("keys", "create", "ann", "--scope", "decide", "--output", "ann.key")
    for command in (
        ("log", "export", "--all"),
        ("explain", "x"),
        ("worker", "--app", HANDLERS),
        ("run", "flow.yaml", "--app", HANDLERS),
    ):
        said = cli(*command, "--key-file", "ann.key")
        assert said.status == 1, command
        assert "lacks the scope" in said.err, command
    assert cli("runs", "--json").json["runs"] == []


def test_a_key_is_shown_once_rotated_and_revoked(cli: Cli) -> None:
    cli("users", "create", "ann")
    made = cli("keys", "create", "ann", "--scope", "read", "--expires", "90d")
    [secret] = re.findall(r"sk_[0-9a-f]{16}_[\w-]{43}", made.out)
    assert "the only time" in made.out
    key = secret.split("_")[1]
    listed = cli("keys", "list")
    assert key in listed.out
    assert secret not in listed.out
    rotated = cli("keys", "rotate", key, "--overlap", "1h", "--json").json
    assert rotated["key"]["replaces"] == key
    assert cli("keys", "revoke", rotated["key"]["id"]).status == 0
    states = {one["id"]: one["state"] for one in cli("keys", "list", "--owner", "ann", "--json").json["keys"]}
    assert states == {key: "live", rotated["key"]["id"]: "revoked"}
    assert cli("keys", "create", "ann", "--scope", "all").status == 2
    assert cli("keys", "create", "ann", "--scope", "read", "--expires", "soon").status == 2


def test_a_narrow_key_gets_no_wider_one_and_a_revoked_one_takes_its_successors_along(cli: Cli) -> None:
    cli("users", "create", "ann")
    wide = cli("keys", "create", "ann", "--scope", "read", "--scope", "start", "--json").json["key"]["id"]
    cli("keys", "create", "ann", "--scope", "read", "--output", "narrow.key")
    refused = cli("keys", "rotate", wide, "--key-file", "narrow.key")
    assert (refused.status, refused.out) == (1, "")
    assert "hands out no key worth more" in refused.err
    cli("keys", "rotate", wide)
    said = cli("keys", "revoke", wide)
    assert "keys that replaced it: 1, sessions: 0" in said.out


def test_a_tenant_that_refuses_vouching_asks_for_a_key(cli: Cli) -> None:
    cli("users", "create", "root")
    cli("tenants", "create", "default")
    early = cli("tenants", "set", "default", "--vouching", "refused")
    assert early.status == 1
    assert "no key with the scope admin" in early.err
    cli("keys", "create", "root", "--scope", "admin", "--scope", "read", "--output", "admin.key")
    done = cli("tenants", "set", "default", "--vouching", "refused")
    assert "needs a key" in done.out
    refused = cli("users", "create", "eve", "--json")
    assert (refused.status, refused.json["error"]["rule"]) == (1, "vouching_refused")
    assert cli("users", "create", "eve", "--key-file", "admin.key").status == 0
    assert "refused" in cli("tenants", "list").out


def test_the_history_of_people_has_every_change_and_its_chain(cli: Cli) -> None:
    cli("users", "create", "ann")
    cli("users", "grant", "ann", "--role", "finance", "--until", "2999-01-01", "--by", "bea")
    cli("users", "disable", "ann")
    cli("users", "enable", "ann")
    said = cli("users", "history")
    assert said.status == 0
    assert "the chain of 4 entries holds" in said.out
    assert "2999-01-01T00:00:00.000Z" in said.out
    found = cli("users", "history", "ann", "--json").json
    assert [one["event"] for one in found["history"]] == ["user_created", "granted", "user_disabled", "user_enabled"]
    assert found["history"][1]["by"] == "bea"
    assert found["chain"] == {"entries": 4, "is_intact": True, "broken_at": None, "differences": []}


@pytest.mark.parametrize("content", ["", "sk_nothing", "x" * 5000, "\x00\xff"])
def test_a_key_file_without_a_key_is_refused_and_not_quoted(cli: Cli, home: Path, content: str) -> None:
    cli("users", "create", "ann")
    (home / "bad.key").write_text(content)
    said = cli("users", "list", "--key-file", "bad.key")
    assert said.status == 2
    assert content[:20] not in said.err or not content
    assert cli("users", "list", "--key-file", "missing.key").status == 2


def test_the_audit_log_tells_who_asked_for_what(cli: Cli) -> None:
    cli("users", "create", "ann", "--by", "bea")
    assert cli("audit", "nobody").out == "no entry of the audit log fits\n"
    [entry] = cli("audit", "ann", "--operation", "user_created", "--json").json["audit"]
    assert (entry["actor"], entry["outcome"], entry["source"]) == ("bea", "done", "people")
    cli("users", "disable", "ann")
    said = cli("audit", "--limit", "1")
    assert "user_disabled" in said.out
    assert "there are more: " in said.out
    assert "user_created" not in said.out
    following = cli("audit", "--json", "--limit", "1").json["next"]
    assert "user_created" in cli("audit", "--cursor", following).out
    assert cli("audit", "--outcome", "perhaps").status == 2


def test_a_key_for_work_is_limited_to_queues_and_handlers_and_listed_with_them(cli: Cli) -> None:
    cli("users", "create", "bob")
    assert "works on" not in cli("keys", "list").out
    limits = ("--queue", "bank", "--queue", "", "--handler", "bank.pay")
    said = cli("keys", "create", "bob", "--scope", "work", *limits).out
    assert "(only queue '', queue bank, handler bank.pay)" in said
    assert "queue bank, handler bank.pay" in " ".join(cli("keys", "list").out.split())
    [made] = cli("keys", "list", "--json").json["keys"]
    assert (made["queues"], made["handlers"]) == (["", "bank"], ["bank.pay"])
    refused = cli("keys", "create", "bob", "--scope", "read", "--queue", "bank")
    assert (refused.status, "limit the scope work" in refused.err) == (2, True)


def test_secrets_are_released_for_signing_and_a_start_names_no_others(cli: Cli) -> None:
    cli("users", "create", "ann")
    cli("keys", "create", "ann", *(f"--scope={one}" for one in ("read", "start", "operate")), "--output", "ann.key")
    assert cli("tenants", "signing", "default").out == "released for signing: none\n"
    Path("hello.yaml").write_text("workflow: hello\nsteps: [{name: sign, approval: {}}]\n", encoding="utf-8")
    assert cli("start", "hello.yaml").status == 0
    given = ("start", "hello", "--webhook-url", "https://shop.example/x", "--webhook-secret", "HOOK")
    refused = cli(*given, "--key-file", "ann.key")
    assert (refused.status, refused.out) == (1, "")
    assert "stepkeep tenants signing default --secret HOOK" in refused.err
    assert (
        cli("tenants", "signing", "default", "--secret", "HOOK", "--secret", "A").out
        == "released for signing: A, HOOK\n"
    )
    assert cli(*given, "--key-file", "ann.key").status == 0
    assert cli("tenants", "signing", "default", "--none", "--secret", "A").status == 2
    assert cli("tenants", "signing", "default", "--none", "--json").json["secrets"] == []
    assert cli("tenants", "signing", "default", "--secret", "no name").status == 2


def test_quotas_of_keys_and_tenants_are_shown_and_changed(cli: Cli) -> None:
    cli("users", "create", "ann")
    said = ("--scope", "start", "--max-concurrent-runs", "5", "--max-requests-per-min", "60", "--json")
    made = cli("keys", "create", "ann", *said).json["key"]
    assert (made["max_concurrent_runs"], made["max_requests_per_min"]) == (5, 60)
    shown = cli("tenants", "quotas", "acme").out
    assert shown.startswith("max_concurrent_runs: no limit\nmax_requests_per_min: no limit\n")
    assert "max_triggers: 1000 (the default)\n" in shown
    assert "max_triggers: 50\n" in cli("tenants", "quotas", "acme", "--limit", "max_triggers=50").out
    assert cli("tenants", "quotas", "acme", "--limit", "max_triggers=many").status == 2
    assert cli("tenants", "quotas", "acme", "--limit", "max_things=1").status == 2
    cli("tenants", "quotas", "acme", "--max-concurrent-runs", "9")
    kept = cli("tenants", "quotas", "acme", "--max-requests-per-min", "70", "--json").json["quotas"]
    set_ones = {name: value for name, value in kept.items() if value is not None}
    assert set_ones == {"max_concurrent_runs": 9, "max_requests_per_min": 70, "max_triggers": 50}
    assert cli("tenants", "quotas", "acme", "--none", "--max-requests-per-min", "7").status == 2
    assert "no limit" in cli("tenants", "quotas", "acme", "--none").out
