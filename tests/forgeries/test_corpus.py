"""The corpus of forgeries: its kinds, its true logs, and the share that the judge finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepkeep.cli.main import main
from stepkeep.conformance.encoding import compact
from stepkeep_lab.forgeries.campaign import Corpus, findings_in, forge_all
from stepkeep_lab.forgeries.kinds import all_kinds
from stepkeep_lab.forgeries.material import CANONICAL, TrueLog, true_logs
from stepkeep_lab.forgeries.seals import resealed
from stepkeep_lab.forgeries.undetectable import UNDETECTABLE

KNOWN_MISSED = {("action", "step.without.extension")}
"""Kinds that the judge should find and misses for some values. The set may only shrink."""

WORDS = {CANONICAL, "ioa", "run", "linear", "action", "workstream"}


@pytest.fixture(scope="module")
def logs() -> list[TrueLog]:
    return [log for log in true_logs(range(4)) if len(log.lines) < 60]


@pytest.fixture(scope="module")
def corpus(logs: list[TrueLog]) -> Corpus:
    return forge_all(logs, tries=1)


def test_there_are_more_than_300_kinds_over_all_dialects() -> None:
    kinds = all_kinds()
    assert len({(kind.words, kind.name) for kind in kinds}) == len(kinds) > 300
    assert {kind.words for kind in kinds} == WORDS


def test_true_logs_give_no_finding_and_recomputing_their_chain_changes_nothing(logs: list[TrueLog]) -> None:
    assert {log.words for log in logs} == WORDS
    for log in logs:
        assert findings_in(log.words, log.lines) == ()
        true = [compact(line) for line in log.parsed()]
        assert [compact(line) for line in resealed(log.parsed(), canonical=log.words == CANONICAL)] == true


def test_every_forgery_without_a_recomputed_chain_is_found(corpus: Corpus) -> None:
    missed = [(kind.words, kind.name) for kind in corpus.kinds if kind.unchained_found < kind.unchained]
    assert missed == []
    assert len(corpus.kinds) > 300


def test_every_kind_with_a_recomputed_chain_is_found_or_listed(corpus: Corpus) -> None:
    told = corpus.as_json()
    assert {"name", "words", "what", "tried", "found", "undetectable"} <= set(told["kinds"][0])
    assert {(kind.words, kind.name) for kind in corpus.kinds if not kind.ok} <= KNOWN_MISSED


def test_a_dialect_log_without_the_definition_that_its_run_names_is_found(logs: list[TrueLog]) -> None:
    for words in sorted(WORDS - {CANONICAL}):
        log = next(log for log in logs if log.words == words)
        lines = [compact(line) for line in resealed(log.parsed()[1:], canonical=False)]
        assert any("definition that this log must begin with" in found for found in findings_in(words, lines)), words


def test_every_reason_of_an_undetectable_kind_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text(encoding="utf-8")
    rows = [row.split("|") for row in page.splitlines() if row.startswith("|")]
    reasons = {cells[3].strip() for cells in rows if len(cells) == 5}
    assert set(UNDETECTABLE.values()) <= reasons
    names = {kind.name for kind in all_kinds()}
    assert {name.partition(":")[2] or name for name in UNDETECTABLE} <= names


def test_the_command_reports_and_writes_what_was_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["lab", "forgeries", "--seeds", "1", "--tries", "0", "--json", "--report", str(tmp_path)])
    told = json.loads(capsys.readouterr().out)["forgeries"]
    assert told["logs"] > 0
    assert told["accused"] == []
    assert json.loads((tmp_path / "forgeries.json").read_text())["logs"] == told["logs"]
