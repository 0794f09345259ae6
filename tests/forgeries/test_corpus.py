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
    assert [one for one in missed if one[1] != "drop_definition"] == []
    assert len(corpus.kinds) > 300


def test_the_share_that_is_found_is_reported_per_kind(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    told = corpus.as_json()
    assert {"name", "words", "what", "tried", "found", "undetectable"} <= set(told["kinds"][0])
    canonical = [kind for kind in corpus.kinds if kind.words == CANONICAL and kind.undetectable is None]
    found, tried = sum(kind.found for kind in canonical), sum(kind.tried for kind in canonical)
    assert found / tried > 0.95, [kind.name for kind in canonical if not kind.ok]


def test_the_command_reports_and_writes_what_was_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["lab", "forgeries", "--seeds", "1", "--tries", "0", "--json", "--report", str(tmp_path)])
    told = json.loads(capsys.readouterr().out)["forgeries"]
    assert told["logs"] > 0
    assert told["accused"] == []
    assert json.loads((tmp_path / "forgeries.json").read_text())["logs"] == told["logs"]
