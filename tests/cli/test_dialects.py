"""The command line speaks every dialect: it loads files in them, tells runs in their words, and judges such logs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepkeep.dialects import registry
from tests.cli.conftest import HANDLERS, Cli
from tests.conformance.tellings import toy_among_dialects

EXAMPLES = Path(__file__).parents[2] / "examples"
PARCEL = "parcel: present\nlegs: [by-van, {gate: customs}, by-plane]\n"
CARRIERS = str(Path(__file__).parents[1] / "conformance" / "toy" / "carriers.py")


@pytest.fixture(autouse=True)
def toy(home: Path) -> Iterator[None]:
    (home / "parcel.yaml").write_text(PARCEL)
    with toy_among_dialects():
        yield


def sent(cli: Cli) -> str:
    """A parcel that is held at customs."""
    said = cli("run", "parcel.yaml", "--app", CARRIERS, "--json")
    assert said.status == 4
    return str(said.json["run"]["id"])


# -- loading ---------------------------------------------------------------------------------------------------------
def test_a_file_is_loaded_by_what_it_looks_like_or_as_it_is_said_to_be(cli: Cli) -> None:
    said = cli("check", "parcel.yaml", "--json")
    assert (said.status, said.json["dialect"], said.json["steps"]) == (0, "toy", 3)
    assert cli("check", "parcel.yaml", "--as", "toy").status == 0
    assert cli("check", "flow.yaml", "--json").json["dialect"] == "native"
    as_native = cli("check", "parcel.yaml", "--as", "native")
    assert as_native.status == 2
    assert "workflow" in as_native.out
    started = cli("start", "parcel.yaml", "--app", CARRIERS, "--json")
    assert started.json["run"]["dialect"] == "toy"


def test_a_problem_in_a_dialects_file_has_its_place(cli: Cli, home: Path) -> None:
    (home / "empty.yaml").write_text("parcel: present\nlegs: []\n")
    said = cli("check", "empty.yaml")
    assert (said.status, said.out.splitlines()[0]) == (2, "empty.yaml:2:7: A parcel has legs.")


def test_a_dialect_that_does_not_exist_is_named_with_the_nearest_one(cli: Cli) -> None:
    run = sent(cli)
    for command in (
        ("check", "parcel.yaml", "--as", "workstreem"),
        ("run", "parcel.yaml", "--as", "workstreem"),
        ("start", "parcel.yaml", "--as", "workstreem"),
        ("show", run, "--as", "workstreem"),
        ("runs", "--as", "workstreem"),
        ("log", "export", run, "--as", "workstreem"),
        ("log", "verify", "parcel.yaml", "--as", "workstreem"),
        ("dialects", "workstreem"),
    ):
        said = cli(*command)
        assert said.status == 2, command
        assert "there is no dialect 'workstreem'. Did you mean workstream?" in said.err, command
    assert "native is the canonical format itself" in cli("show", run, "--as", "native").err


# -- telling ---------------------------------------------------------------------------------------------------------
def test_a_run_is_shown_and_listed_in_a_dialects_words(cli: Cli) -> None:
    run = sent(cli)
    view = cli("show", run, "--as", "toy", "--json").json
    assert view == {
        "parcel": "present",
        "stands": "held",
        "legs": {"by-van": "done", "customs": "travelling", "by-plane": "planned"},
    }
    assert cli("show", run, "--as", "toy").out.splitlines()[:3] == ["parcel: present", "stands: held", "legs:"]
    listed = cli("runs", "--as", "toy", "--json").json
    assert listed == {"runs": [{"parcel": "present", "stands": "held"}], "next": None}
    assert cli("runs", "--as", "toy").out.split() == ["PARCEL", "STANDS", "present", "held"]


def test_a_log_is_exported_and_verified_in_a_dialects_words(cli: Cli, home: Path) -> None:
    run = sent(cli)
    assert cli("approve", run).status == 0
    written = cli("log", "export", run, "--as", "toy", "--output", "log.jsonl", "--json").json
    lines = [json.loads(line) for line in (home / "log.jsonl").read_text().splitlines()]
    assert written["export"]["lines"] == len(lines)
    assert {line["event_type"] for line in lines} == {
        "parcel_state_transition",
        "leg_state_transition",
        "journal_definition",
        "journal_head",
    }
    first, last = lines[1], lines[-1]
    assert (first["from_state"], first["to_state"], first["trigger"]) == (None, "waiting", "posted")
    assert {"run_id", "seq", "dialect", "line", "hash"} <= set(first["metadata"])
    done = next(line for line in lines if line["to_state"] == "done")
    assert {"step", "attempt", "duration_seconds", "retry_count"} <= set(done["metadata"])
    shown = cli("show", run, "--json").json["run"]["journal"]
    assert (last["metadata"]["head"], last["metadata"]["state"]) == (shown["head"], last["to_state"])
    assert cli("log", "verify", "log.jsonl", "--as", "toy").status == 0
    assert cli("log", "verify", "log.jsonl").status == 0, "its first line says whose words it is in"


def test_a_log_that_was_tampered_with_has_findings_and_status_1(cli: Cli, home: Path) -> None:
    run = sent(cli)
    out = cli("log", "export", run, "--as", "toy").out.splitlines()
    (home / "cut.jsonl").write_text("\n".join([*out[:3], *out[4:]]))
    said = cli("log", "verify", "cut.jsonl", "--as", "toy", "--json")
    assert said.status == 1
    assert [(one["line"], one["code"]) for one in said.json["findings"]] == [(4, "gap")]
    text = cli("log", "verify", "cut.jsonl", "--as", "toy")
    assert (text.status, text.out.splitlines()[0].startswith("cut.jsonl:4: gap: ")) == (1, True)


# -- judging ---------------------------------------------------------------------------------------------------------
def test_a_run_is_certified_in_every_dialect(cli: Cli) -> None:
    run = sent(cli)
    said = cli("certify", run, "--json")
    assert (said.status, said.json["verdict"], said.json["written_in"]) == (0, "conforms", "toy")
    assert [one["dialect"] for one in said.json["dialects"]] == list(registry.names())
    page = cli("certify", run).out
    assert page.startswith(f"# Certificate of run {run}\n")
    assert said.json["head"] in page
    assert cli("certify", "f" * 36).status == 1


@pytest.mark.parametrize("name", [name for name in registry.PACKAGES if (EXAMPLES / f"{name}.yaml").exists()])
def test_every_dialects_example_runs_and_conforms_in_all_the_others(cli: Cli, home: Path, name: str) -> None:
    """Whatever the example comes to without input: any run may be viewed in every dialect's words."""
    code = EXAMPLES / f"{name}_handlers.py"
    apps = ("--app", str(code)) if code.exists() else ()
    run = cli("run", str(EXAMPLES / f"{name}.yaml"), *apps, "--json").json["run"]
    assert run["dialect"] == name
    assert cli("certify", run["id"]).status == 0
    for other in registry.names():
        assert cli("show", run["id"], "--as", other, "--json").status == 0
        assert cli("runs", "--as", other, "--json").status == 0
        assert cli("log", "export", run["id"], "--as", other, "-o", f"{other}.jsonl").status == 0
        assert cli("log", "verify", f"{other}.jsonl", "--as", other).out.endswith("no findings\n")


# -- telling about dialects ------------------------------------------------------------------------------------------
def test_the_dialects_are_listed_and_each_is_told_in_full(cli: Cli) -> None:
    listed = cli("dialects", "--json").json["dialects"]
    assert [one["name"] for one in listed] == list(registry.names())
    for one in listed:
        assert one["name"] in cli("dialects").out
        told = cli("dialects", one["name"]).out
        full = cli("dialects", one["name"], "--json").json
        judged = registry.judged(one["name"])
        for view in judged.views:
            assert all(state in told for state in (*view.states, *view.extra))
        assert [machine["noun"] for machine in full["machines"]] == [view.noun for view in judged.views]
        assert sum(len(machine["extensions"]) for machine in full["machines"]) == sum(
            len(view.extensions) for view in judged.views
        )
        assert len(full["defaults"]) == len(judged.defaults)


def test_machines_are_drawn_and_schemas_printed(cli: Cli) -> None:
    drawn = cli("dialects", "toy", "--mermaid").out
    assert drawn.count("stateDiagram-v2") == 2
    assert "    [*] --> waiting: posted\n" in drawn
    assert "    waiting --> returned: extension\n" in drawn
    assert "    arrived --> [*]\n" in drawn
    assert cli("dialects", "toy", "--schema").json == {}
    assert cli("dialects", "--mermaid").status == 2


def test_check_explains_what_a_definition_became(cli: Cli, home: Path) -> None:
    (home / "keen.yaml").write_text(
        "workflow: keen\nsteps:\n  - {name: one, uses: cli.work, timeout: 90s, retry: {max_attempts: 5}}\n"
    )
    out = cli("check", "keen.yaml", "--explain").out.splitlines()
    assert "    timeout: 1m30s" in out
    assert "      max_attempts: 5" in out
    assert "      max: 30s  # default" in out
    assert "lease: 30s  # default" in out
    told = cli("check", "parcel.yaml", "--explain").out
    assert "- Sequence or graph? always a sequence (toy §5)" in told
    assert "name: toy.carry  # by the toy dialect" in told
    made = cli("check", "keen.yaml", "--explain", "--json").json["definition"]
    assert made["steps"][0]["timeout"] == 90_000_000


def test_handlers_of_the_native_flows_are_still_found(cli: Cli) -> None:
    assert cli("run", "flow.yaml", "--app", HANDLERS, "--as", "native").status == 0
