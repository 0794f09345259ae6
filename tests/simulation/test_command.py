"""`stepkeep lab simulate` and `stepkeep lab mutants`."""

import json
from pathlib import Path

import pytest

from stepkeep.cli.main import main
from stepkeep_lab.cli import lab, lab_campaign
from stepkeep_lab.simulation import campaign, long_campaign
from stepkeep_lab.simulation.campaign import run_campaign
from stepkeep_lab.simulation.mutants import MUTANTS
from stepkeep_lab.simulation.mutation import Edit, Mutant, planted


def test_it_says_what_was_played_and_met(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "simulate", "--seeds", "2", "--with", '{"runs": 2}']) == 0
    said = capsys.readouterr()
    assert said.out.startswith("2 seeds, ")
    assert said.out.endswith("no violation\n")
    assert "never reached:" in said.out
    assert "2 of 2 seeds" in said.err


def test_with_json_it_answers_with_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "simulate", "--seeds", "2", "--from", "7", "--with", '{"runs": 1}', "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["simulation"]
    assert (told["first_seed"], told["seeds"], told["failures"]) == (7, 2, [])
    assert told["runs"] >= 1


def test_a_scenario_that_cannot_be_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ("{", "[]", '{"weather": 1}', '{"runs": "many"}'):
        assert main(["lab", "simulate", "--seeds", "1", "--with", wrong]) == 2
        assert "--with:" in capsys.readouterr().err


@pytest.mark.proof
def test_a_failing_seed_comes_with_the_command_that_plays_it(capsys: pytest.CaptureFixture[str]) -> None:
    with planted(next(mutant for mutant in MUTANTS if mutant.name == "fence-stays")):
        assert main(["lab", "simulate", "--seeds", "1", "--from", "5"]) == 1
    said = capsys.readouterr().out
    assert "seed 5 FAILED; play it again:  stepkeep lab simulate --seeds 1 --from 5\n" in said
    assert "  smaller:  stepkeep lab simulate --seeds 1 --from 5 --with '" in said
    assert "I3 fences grow by one: " in said


def test_planted_bugs_are_listed_with_their_score(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "mutants", "--only", "fence-stays"]) == 0
    said = capsys.readouterr().out
    assert "fence-stays" in said
    assert said.endswith("1 of 1 planted bugs were caught\n")
    assert main(["lab", "mutants", "--only", "drain-forgets", "--most", "1", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)["mutants"]
    assert (told["caught"], told["of"]) == (0, 1)
    assert main(["lab", "mutants", "--only", "nonsense"]) == 2


def test_planted_bugs_are_hunted_in_pieces_and_kept_with_their_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, bugs = tmp_path / "planted.json", ("fence-stays", "output-lost")

    def hunted(commit: str, *names: str) -> list[str]:
        monkeypatch.setattr(lab, "commit", lambda: commit)
        only = [word for name in names for word in ("--only", name)]
        assert main(["lab", "mutants", *only, "--report", str(file)]) == 0
        return [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith(bugs)]

    assert hunted("a", "fence-stays") == ["fence-stays"]
    assert hunted("a", *bugs) == ["output-lost"]
    assert hunted("b", "output-lost") == ["output-lost"]
    kept = json.loads(file.read_text())["mutants"]
    assert {score["name"]: score["commit"] for score in kept["scores"]} == {"fence-stays": "a", "output-lost": "b"}
    assert (kept["caught"], kept["of"]) == (2, len(MUTANTS))
    file.write_text("[]")
    assert main(["lab", "mutants", "--only", "fence-stays", "--report", str(file)]) == 2
    assert "planted.json is no report of planted bugs" in capsys.readouterr().err


def campaign_in(folder: Path, *more: str) -> int:
    return main(["lab", "campaign", "--runs", "1", "--no-mutants", "--report", str(folder), *more])


def test_a_campaign_leaves_a_report_that_says_what_was_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab_campaign, "commit", lambda: "c0ffee")
    monkeypatch.setattr(campaign, "BATCH", 2)
    assert campaign_in(tmp_path) == 0
    assert capsys.readouterr().out.endswith("no violation\n")
    told = json.loads((tmp_path / "simulation.json").read_text())
    page = (tmp_path / "simulation.md").read_text()
    assert told["ok"] is True
    assert told["commit"] == "c0ffee"
    assert told["simulation"]["runs"] >= 1
    assert told["simulation"]["digest"] == run_campaign(told["simulation"]["seeds"]).digest
    assert "Commit `c0ffee`" in page
    assert "Verdict: **no violation**" in page
    assert str(tmp_path) not in page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["simulation.json", "simulation.md"]


@pytest.mark.proof
def test_a_campaign_that_was_interrupted_goes_on_and_only_with_the_same_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(progress: long_campaign.Progress) -> None:
        if progress.campaign.seeds > 2:
            raise Interrupted

    monkeypatch.setattr(long_campaign, "SAVED_EVERY", 0.0)
    monkeypatch.setattr(campaign, "BATCH", 2)
    with pytest.raises(Interrupted):
        long_campaign.explore(tmp_path, commit="c0ffee", machine={}, runs=10_000, with_mutants=False, told=interrupt)
    monkeypatch.setattr(lab_campaign, "commit", lambda: "facade")
    assert campaign_in(tmp_path) == 2
    assert "was left off at commit c0ffee" in capsys.readouterr().err
    report = long_campaign.explore(tmp_path, commit="c0ffee", machine={}, runs=1, with_mutants=False)
    assert report.campaign.seeds == 2
    assert report.campaign.digest == run_campaign(report.campaign.seeds).digest


@pytest.mark.proof
def test_the_report_names_violations_and_missed_bugs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harmless = Mutant("harmless", "nothing is different", (Edit("kernel.decide.retry:may_retry", "return", "return"),))
    chosen = [harmless, next(mutant for mutant in MUTANTS if mutant.name == "fence-stays")]
    for module in (long_campaign, campaign):
        monkeypatch.setattr(module, "MUTANTS", chosen)
    monkeypatch.setattr(long_campaign, "MUTANT_SEEDS", 10)
    report = long_campaign.explore(tmp_path, commit="c0ffee", machine={}, runs=1)
    assert not report.ok
    assert report.missed == ["harmless"]
    page = (tmp_path / "simulation.md").read_text()
    assert "planted bugs were missed: harmless" in page
    assert "| fence-stays |" in page
    with planted(next(mutant for mutant in MUTANTS if mutant.name == "fence-stays")):
        report = long_campaign.explore(tmp_path, commit="c0ffee", machine={}, runs=1, with_mutants=False)
    assert not report.ok
    assert "## Violations" in (tmp_path / "simulation.md").read_text()
