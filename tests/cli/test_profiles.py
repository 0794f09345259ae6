"""Profiles: services and databases by name. An option counts before a variable, and a variable before a profile."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stepkeep.cli.profiles import complete_profile, profiles_file, read_profiles
from stepkeep.edges.redaction import database_url
from tests.cli.conftest import Cli

KEY = "sk_" + "a" * 16 + "_" + "b" * 43
AWAY = "http://127.0.0.1:9"
"""Nothing listens there."""


@pytest.fixture
def key(cli: Cli) -> str:
    """A real key of the database in this directory."""
    assert cli("users", "create", "ann").status == 0
    return str(cli("keys", "create", "ann", "--scope", "read", "--json").json["secret"])


def is_asked_at(cli: Cli, *options: str) -> str:
    """Where `runs` with these options looks: the address of the service, or the database."""
    said = cli("runs", *options)
    if said.status == 0:
        return said.out.strip().removeprefix("no runs in ")
    assert "cannot be reached" in said.err, said
    return said.err.partition("the service at ")[2].partition(" ")[0]


def test_a_profile_in_use_counts_where_neither_an_option_nor_a_variable_says_where(
    cli: Cli, home: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = f"sqlite:///{home / '.stepkeep' / 'stepkeep.db'}"
    monkeypatch.setenv("STEPKEEP_KEY", key)
    assert cli("profile", "add", "prod", "--server", AWAY).status == 0
    assert cli("profile", "add", "test", "--server", "http://127.0.0.1:10").status == 0
    assert cli("profile", "add", "here", "--db", "sqlite:///.stepkeep/stepkeep.db").status == 0
    assert "sqlite" in is_asked_at(cli)
    assert cli("profile", "use", "prod").status == 0
    assert is_asked_at(cli) == AWAY
    assert is_asked_at(cli, "--profile", "test") == "http://127.0.0.1:10"
    assert is_asked_at(cli, "--profile", "here") == here
    assert is_asked_at(cli, "--db", here) == here
    assert is_asked_at(cli, "--server", "http://127.0.0.1:11") == "http://127.0.0.1:11"
    monkeypatch.setenv("STEPKEEP_PROFILE", "test")
    assert is_asked_at(cli) == "http://127.0.0.1:10"
    monkeypatch.delenv("STEPKEEP_PROFILE")
    monkeypatch.setenv("STEPKEEP_DB", here)
    assert is_asked_at(cli) == here
    assert is_asked_at(cli, "--profile", "prod") == AWAY
    monkeypatch.delenv("STEPKEEP_DB")
    monkeypatch.setenv("STEPKEEP_SERVER", "http://127.0.0.1:11")
    assert is_asked_at(cli) == "http://127.0.0.1:11"
    monkeypatch.delenv("STEPKEEP_SERVER")
    assert cli("profile", "use", "--none").status == 0
    assert "sqlite" in is_asked_at(cli)


@pytest.mark.parametrize(
    ("options", "variables", "says"),
    [
        (["--db", "sqlite:///x.db", "--server", AWAY], {}, "--db and --server both say where"),
        (["--server", AWAY, "--profile", "prod"], {}, "--server and --profile both say where"),
        (["--db", "sqlite:///x.db", "--profile", "prod"], {}, "--db and --profile both say where"),
        ([], {"STEPKEEP_DB": "sqlite:///x.db", "STEPKEEP_SERVER": AWAY}, "STEPKEEP_DB and STEPKEEP_SERVER both say"),
        ([], {"STEPKEEP_PROFILE": "p", "STEPKEEP_SERVER": AWAY}, "STEPKEEP_SERVER and STEPKEEP_PROFILE both say"),
        (["--server", AWAY, "--tenant", "acme"], {}, "a service takes no --tenant"),
        (["--server", AWAY], {}, "a service needs a key: --key-file FILE, STEPKEEP_KEY"),
        (["--server", "flows.example.org"], {"STEPKEEP_KEY": KEY}, "the service is named by its address"),
        (["--server", "https://ann:pw@flows.example.org"], {"STEPKEEP_KEY": KEY}, "without a user, a password"),
        (["--server", AWAY], {"STEPKEEP_KEY": "sk_short"}, "the key is not one"),
        (["--db", AWAY], {}, "Name a service with --server URL"),
        (["--profile", "nowhere"], {}, "there is no profile nowhere"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, options: list[str], variables: dict[str, str], says: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    said = cli("runs", *options)
    assert said.status == (1 if "nowhere" in options else 2)
    assert says in said.err
    assert "pw@" not in said.err


def test_the_option_before_a_command_says_where_it_goes(cli: Cli) -> None:
    assert "--server goes behind the command" in cli("--server", AWAY, "runs").err
    assert "--profile goes behind the command" in cli("--profile", "prod", "runs").err


def sent(cli: Cli, monkeypatch: pytest.MonkeyPatch, *options: str) -> str | None:
    """The key that a command with these options sends."""
    from stepkeep.client import async_client

    found: list[str] = []

    def parsed(key: str) -> Any:
        found.append(key)
        raise InterruptedError

    monkeypatch.setattr(async_client, "parse_key", parsed)
    said = cli("runs", *options)
    return found[0] if found else said.err


def test_the_key_of_a_profile_goes_to_its_own_service_alone(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (home / f"{name}.key").write_text(f"key of {name}\n")
    assert cli("profile", "add", "prod", "--server", AWAY, "--key-file", "a.key", "--use").status == 0
    monkeypatch.chdir(home.parent)  # the file of the key is found from every directory
    assert sent(cli, monkeypatch) == "key of a"
    assert sent(cli, monkeypatch, "--key-file", str(home / "b.key")) == "key of b"
    assert "a service needs a key" in str(sent(cli, monkeypatch, "--server", "http://127.0.0.1:10"))
    monkeypatch.setenv("STEPKEEP_KEY", "key of c")
    assert sent(cli, monkeypatch) == "key of c"
    assert sent(cli, monkeypatch, "--profile", "prod") == "key of a"
    assert sent(cli, monkeypatch, "--profile", "prod", "--key-file", str(home / "b.key")) == "key of b"
    assert sent(cli, monkeypatch, "--server", "http://127.0.0.1:10") == "key of c"
    monkeypatch.setenv("STEPKEEP_KEY_FILE", str(home / "b.key"))
    assert sent(cli, monkeypatch) == "key of b"


def test_no_command_prints_a_key_or_a_password(cli: Cli, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(f"{key}\n".encode())))
    said = [cli("profile", "add", "prod", "--server", AWAY, "--store-key", "--key-file", "-", "--use", "--json")]
    url = "postgresql://app:s3cret-word@db.example/flows"
    said += [cli("profile", "add", "books", "--db", url, "--tenant", "acme")]
    for command in (["list"], ["show"], ["show", "books"], ["use", "prod"], ["use", "books"], ["remove", "books"]):
        said += [cli("profile", *command), cli("profile", *command, "--json")]
    told = "".join(one.out + one.err for one in said)
    assert key not in told
    assert "s3cret-word" not in told
    assert database_url(url) in told
    assert [one.status for one in said[:-1]] == [0] * (len(said) - 1)
    assert "there is no profile books" in said[-1].err
    stored = read_profiles().named("prod")
    assert (stored.key, stored.server) == (key, AWAY)
    assert profiles_file().stat().st_mode & 0o777 == 0o600


def test_a_stored_key_acts(cli: Cli, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPKEEP_KEY", key)
    assert cli("profile", "add", "here", "--db", "sqlite:///.stepkeep/stepkeep.db", "--store-key", "--use").status == 0
    monkeypatch.delenv("STEPKEEP_KEY")
    assert cli("runs").status == 0
    refused = cli("users", "create", "bea")
    assert refused.status == 1
    assert "admin" in refused.err


@pytest.mark.parametrize(
    ("mode", "secret", "says"),
    [
        (0o644, False, None),
        (0o640, True, "others may read the file of profiles"),
        (0o604, True, "others may read the file of profiles"),
        (0o620, False, "others may change the file of profiles"),
        (0o602, True, "others may change the file of profiles"),
        (0o600, True, None),
    ],
)
def test_a_file_that_others_may_use_is_refused(cli: Cli, key: str, mode: int, secret: bool, says: str | None) -> None:
    file = profiles_file()
    kept = f'key = "{key}"\n' if secret else ""
    file.write_text(f'use = "here"\n[profiles.here]\ndb = "sqlite:///.stepkeep/stepkeep.db"\n{kept}')
    file.chmod(mode)
    said = cli("runs")
    assert said.status == (0 if says is None else 2)
    if says is not None:
        assert says in said.err
        assert f"chmod 600 {file}" in said.err
    assert cli("check", "flow.yaml").status == 0  # what asks for no runs reads no profile


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("use = 3", "is wrong"),
        ("use =", "is wrong"),
        ("[profiles.x]\nserver = 'http://a'\ndb = 'sqlite:///x'", "the profile x in"),
        ("[profiles.x]\ntenant = 'a'", "the profile x in"),
        ("[profiles.x]\nserver = 'http://a'\npassword = 'p'", "password"),
        ("use = 'gone'", "there is no profile gone"),
    ],
)
def test_a_wrong_file_is_named(cli: Cli, text: str, says: str) -> None:
    profiles_file().write_text(text)
    said = cli("runs")
    assert said.status in (1, 2)
    assert says in said.err
    assert str(profiles_file()) in said.err


def test_profiles_are_added_shown_used_and_removed(cli: Cli, home: Path) -> None:
    assert cli("profile", "list", "--json").json == {"profiles": [], "file": str(profiles_file())}
    made = cli("profile", "add", "prod", "--server", "https://flows.example.org/", "--key-file", "k", "--json").json
    assert made["profile"] == {
        "profile": "prod",
        "server": "https://flows.example.org",
        "db": None,
        "tenant": None,
        "key": f"in {home / 'k'}",
        "in_use": False,
    }
    assert "Give --replace" in cli("profile", "add", "prod", "--server", AWAY).err
    assert cli("profile", "add", "prod", "--server", AWAY, "--replace", "--use").status == 0
    assert cli("profile", "show", "--json").json["profile"]["key"] is None
    assert cli("profile", "add", 'a "b"', "--server", AWAY).status == 2
    assert cli("profile", "add", "none").status == 2
    assert cli("profile", "add", "empty", "--server", AWAY, "--store-key").status == 2
    assert cli("profile", "use", "nowhere").status == 1
    assert cli("profile", "use").status == 2
    assert cli("profile", "remove", "prod").out == "profile prod is removed; no profile is in use now\n"
    assert cli("profile", "show").status == 2
    assert cli("profile", "list").out.startswith("no profile is in ")


def test_the_folder_of_the_user_has_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPKEEP_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    assert profiles_file() == home / "config" / "stepkeep" / "profiles.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(home))
    assert profiles_file() == home / ".config" / "stepkeep" / "profiles.toml"


def test_hints_name_the_profile_or_the_service_that_was_typed(cli: Cli, key: str) -> None:
    assert cli("profile", "add", "here", "--db", "sqlite:///.stepkeep/stepkeep.db").status == 0
    typed = cli("start", "gated.yaml", "--profile", "here", "--handlers-elsewhere")
    assert "--profile here" in typed.out
    assert "--db" not in typed.out
    cli("profile", "use", "here")
    assert "--profile" not in cli("start", "gated.yaml", "--handlers-elsewhere").out


@pytest.mark.parametrize(
    "command",
    [
        ["db", "status"],
        ["db", "migrate"],
        ["prune", "--dry-run"],
        ["archive"],
        ["serve"],
        ["dev"],
        ["state", "export", "here"],
        ["network", "allow", "10.0.0.1"],
        ["network", "remove", "10.0.0.1"],
    ],
    ids=" ".join,
)
def test_what_needs_the_database_itself_refuses_a_service(
    cli: Cli, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPKEEP_KEY", KEY)
    words = " ".join(command[: 2 if command[0] in ("db", "state", "network") else 1])
    said = cli(*command, "--server", AWAY)
    assert said.status == 2
    assert f"`stepkeep {words}` needs the database itself, and {AWAY} is a service: give --db URL instead" in said.err
    assert cli("profile", "add", "prod", "--server", AWAY, "--use").status == 0
    assert "and the profile prod names a service: give --db URL instead" in cli(*command).err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["run", "flow.yaml"], "At a service, `stepkeep start` leaves them to its workers"),
        (["run", "--resume", "abcd"], "At a service, `stepkeep start` leaves them to its workers"),
        (["rerun", "abcd", "--wait"], "--wait needs the database itself"),
        (["retry", "abcd", "--wait"], "--wait needs the database itself"),
        (["show", "abcd", "--follow"], "show --follow needs the database itself"),
        (["log", "export", "--all"], "log export --all needs the database itself"),
        (["log", "export", "abcd", "--workers"], "log export --workers needs the database itself"),
        (["tenants", "quotas", "acme", "--max-concurrent-runs", "3"], "tenants quotas, where it changes them, needs"),
        (["tenants", "quotas", "acme", "--none"], "tenants quotas, where it changes them, needs the database itself"),
        (["sinks", "test", "mine", "--http-allow", "x"], "sinks test with --http-allow, --secrets-dir or"),
        (["evidence", "--sign-heads", "--sign-with", "k"], "evidence --sign-heads` needs the database itself"),
        (["evidence", "abcd", "--sign-with", "k"], "`stepkeep evidence --sign-with` needs the database itself"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_that_needs_the_database_refuses_a_service(
    cli: Cli, command: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPKEEP_KEY", KEY)
    said = cli(*command, "--server", AWAY)
    assert said.status == 2
    assert says in said.err


def test_a_shell_completes_the_names_of_profiles(cli: Cli) -> None:
    assert complete_profile("") == []
    for name in ("prod", "preview", "here"):
        assert cli("profile", "add", name, "--server", AWAY).status == 0
    assert complete_profile("pr") == ["preview", "prod"]
    profiles_file().chmod(0o666)
    assert complete_profile("pr") == []
