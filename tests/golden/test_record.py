"""Recorded behaviour: what differs from the record in this folder is told with its place.

`make test` compares the documents and a few lives and logs; `make proof` all, with `stepkeep lab golden check`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import stepkeep
import stepkeep_lab
from stepkeep.api.app import describe
from stepkeep.cli.main import app
from stepkeep.kernel.decide import draft
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.kernel.machine.journal import Entry, SealedEntry, chain, seal
from stepkeep_lab.golden import documents, lives, record, statements
from stepkeep_lab.simulation.mutation import Edit, Mutant, planted

HERE = Path(__file__).parent


def unheard(said: str) -> None:
    """Nobody asks how far it is."""


def recorded(folder: Path, part: str) -> None:
    record.record(folder, [part], long=False, jobs=1, told=unheard)


def differences(folder: Path, part: str) -> list[str]:
    return record.check(folder, [part], long=False, jobs=1, told=unheard)


# -- today's behaviour -------------------------------------------------------------------------------------------------
def asked(*more: str, **options: Any) -> tuple[str, int]:
    """What `check` says of the record, in a process of its own: modules of other tests have no part in it."""
    command = [sys.executable, "-m", "stepkeep", "lab", "golden", "check", "--folder", str(HERE), *more]
    done = subprocess.run(command, timeout=300, text=True, check=False, capture_output=True, **options)
    return done.stdout + (done.stderr if done.returncode else ""), done.returncode


def test_documents_are_as_recorded() -> None:
    assert asked("--only", "documents") == ("nothing differs\n", 0)


@pytest.mark.parametrize(("part", "most"), [("lives", 4), ("statements", 2)])
def test_the_first_lives_and_logs_are_as_recorded_also_in_another_place(part: str, most: int, tmp_path: Path) -> None:
    """The path of the checkout, the hash seed, secrets, the time zone and the home leave no trace."""
    for package in (stepkeep, stepkeep_lab):
        (tmp_path / package.__name__).symlink_to(Path(package.__path__[0]))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(tmp_path),
        "PYTHONHASHSEED": "7",
        "HOME": str(tmp_path),
        "PWD": str(tmp_path),
        "TZ": "Asia/Tokyo",
        "A_TOKEN": "something",
        "LANG": "C.UTF-8",
    }
    few = ("--only", part, "--most", str(most), "--jobs", "1")
    assert asked(*few, env=environment, cwd=tmp_path) == ("nothing differs\n", 0)


# -- lives -------------------------------------------------------------------------------------------------------------
@pytest.fixture
def three_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(record, "SHORT", {"small": 3})
    with patch.object(lives, "unreached", return_value=[]):
        recorded(tmp_path, "lives")
    assert differences(tmp_path, "lives") == []
    return tmp_path


def one_byte_more(entry: Entry, head: bytes) -> SealedEntry:
    """The second entry of a run says that it came a little later."""
    sealed = seal(entry, head)
    if entry.seq != 2:
        return sealed
    body = sealed.body.replace(b'"at":17', b'"at":27')
    return SealedEntry(entry.tenant, entry.run_id, entry.seq, entry.at, body, chain(head, body))


def test_one_byte_of_a_journal_is_told_with_its_seed_and_entry(
    three_lives: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe = lives.observe

    def planted_in_one(profile: str, seed: int) -> Any:
        with patch.object(draft, "seal", one_byte_more) if seed == 1 else nullcontext():
            return observe(profile, seed)

    monkeypatch.setattr(lives, "observe", planted_in_one)
    [found] = differences(three_lives, "lives")
    assert found.startswith("life 1 of the profile small differs in the journal of run acme 0190000")
    assert ' at entry 2, which is now {"tenant":"acme"' in found
    assert '"seq":2,"at":27' in found


def life(journals: dict[str, list[bytes]], **tables: bytes) -> lives.Observation:
    observed = lives.Observation()
    observed.entries, observed.tables = journals, tables
    return observed


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (life({"acme r-1": [b"a", b"c"]}, runs=b"1", steps=b"2"), "run acme r-1 at entry 2, which is now c"),
        (life({"acme r-1": [b"a", b"b", b"c"]}, runs=b"1", steps=b"2"), "run acme r-1 at entry 3, which is now c"),
        (life({"acme r-1": [b"a"]}, runs=b"1", steps=b"2"), "run acme r-1: it ends with entry 1, and had 2"),
        (
            life({"acme r-1": [b"a", b"b"], "acme r-2": [b"c"]}, runs=b"1", steps=b"2"),
            "number of runs: 2, recorded were 1",
        ),
        (life({"acme r-1": [b"a", b"b"]}, runs=b"1", steps=b"3"), "steps: now 3"),
        (life({"acme r-1": [b"a", b"b"]}, runs=b"1"), "number of tables: 1, recorded were 2"),
    ],
)
def test_the_place_of_a_difference_is_an_entry_a_run_or_a_table(now: lives.Observation, said: str) -> None:
    before = life({"acme r-1": [b"a", b"b"]}, runs=b"1", steps=b"2").life
    assert now.life.digest != before.digest
    assert lives.differences(before, now).endswith(said)


def test_lives_that_do_not_reach_everything_are_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "SHORT", {"small": 1})
    with pytest.raises(
        InvalidInput, match=r"do not reach everything, so they are not recorded: event: .*GateReassigned"
    ):
        recorded(tmp_path, "lives")
    with pytest.raises(NotFound, match="record it first"):
        differences(tmp_path, "lives")


# -- statements --------------------------------------------------------------------------------------------------------
MORE_ROWS = (
    "after, limit)",
    "after, limit + 1)",
    r"parameters of statements \d+ to \d+; now\n(.*\n)*    read_journal .*1001",
)
ONE_MORE = (
    "asked = (",
    "_, asked = await self.read_outbox(tenant, run_id), (",
    r"statement \d+ is read_outbox .*; recorded was read_journal",
)


@pytest.mark.parametrize(
    ("store", "change"),
    [("sqlite", MORE_ROWS), ("sqlite", ONE_MORE), ("postgres", ONE_MORE)],
    ids=["sqlite rows", "sqlite", "postgres"],
)
def test_one_statement_is_told_with_its_name_and_number(
    store: str, change: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "STORES", (store,))
    monkeypatch.setattr(statements, "SEEDS", 1)
    recorded(tmp_path, "statements")
    old, new, place = change
    with planted(Mutant("x", "another statement", (Edit("store.protocol:Store.read_journal", old, new),))):
        [found] = differences(tmp_path, "statements")
    assert re.match(f"the statements of seed 0 on {store} differ: {place}", found), found


# -- documents ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Records one document."""

    def record_one(name: str) -> Path:
        monkeypatch.setattr(documents, "DOCUMENTS", {name: documents.DOCUMENTS[name]})
        recorded(tmp_path, "documents")
        assert differences(tmp_path, "documents") == []
        return tmp_path

    return record_one


def test_one_field_of_the_openapi_document_is_told_with_its_path(
    only: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = only("openapi.txt")

    def planted_field(served: Any) -> dict[str, Any]:
        told = describe(served)
        body = told["paths"]["/runs/{run_id}/reassign"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        body["properties"]["fail"]["type"] = "integer"
        return told

    monkeypatch.setattr("stepkeep.api.app.describe", planted_field)
    [found] = differences(folder, "documents")
    first, *shown = found.splitlines()
    keys = "requestBody content application/json schema properties fail:"
    assert re.fullmatch(rf"document openapi.txt: line \d+, under 'POST /runs/{{run_id}}/reassign' {keys}", first)
    assert [line.split() for line in shown if line[4] in "-+"] == [
        ["-", '"type":', '"boolean"'],
        ["+", '"type":', '"integer"'],
    ]


def test_one_help_text_is_told_with_its_command_and_line(
    only: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = only("help.txt")
    [command] = [one for one in app.registered_commands if one.name == "escalate"]
    monkeypatch.setattr(command, "help", "Do something else.")
    [found] = differences(folder, "documents")
    lines = (folder / "documents/help.txt").read_text(encoding="utf-8").splitlines()
    assert found.startswith(
        f"document help.txt: line {lines.index('## stepkeep escalate') + 2}, under '## stepkeep escalate':"
    )
    assert "\n    +Do something else." in found


def test_documents_that_come_and_go_are_told(only: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = only("metrics.txt")
    monkeypatch.setattr(documents, "DOCUMENTS", {"other.txt": lambda: "something"})
    assert differences(folder, "documents") == [
        "document other.txt is not recorded",
        "document metrics.txt is recorded, and there is none any more",
    ]
