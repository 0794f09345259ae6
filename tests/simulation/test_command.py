"""`stepkeep lab simulate` and `stepkeep lab mutants`."""

import json

import pytest

from stepkeep.cli.main import main
from stepkeep.simulation.mutants import MUTANTS
from stepkeep.simulation.mutation import planted


def test_it_says_what_was_played_and_met(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "simulate", "--seeds", "5"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("5 seeds, ")
    assert said.out.endswith("no violation\n")
    assert "never reached:" in said.out
    assert "5 of 5 seeds" in said.err


def test_with_json_it_answers_with_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "simulate", "--seeds", "2", "--from", "7", "--with", '{"runs": 1}', "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["simulation"]
    assert (told["first_seed"], told["seeds"], told["failures"]) == (7, 2, [])
    assert told["runs"] >= 1


def test_a_scenario_that_cannot_be_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ("{", "[]", '{"weather": 1}', '{"runs": "many"}'):
        assert main(["lab", "simulate", "--seeds", "1", "--with", wrong]) == 2
        assert "--with:" in capsys.readouterr().err


def test_a_failing_seed_comes_with_the_command_that_plays_it(capsys: pytest.CaptureFixture[str]) -> None:
    with planted(next(mutant for mutant in MUTANTS if mutant.name == "fence-stays")):
        assert main(["lab", "simulate", "--seeds", "1", "--from", "1"]) == 1
    said = capsys.readouterr().out
    assert "seed 1 FAILED; play it again:  stepkeep lab simulate --seeds 1 --from 1\n" in said
    assert "  smaller:  stepkeep lab simulate --seeds 1 --from 1 --with '" in said
    assert "I3: " in said


def test_planted_bugs_are_listed_with_their_score(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "mutants", "--only", "fence-stays", "--only", "output-lost"]) == 0
    said = capsys.readouterr().out
    assert "fence-stays" in said
    assert said.endswith("2 of 2 planted bugs were caught\n")
    assert main(["lab", "mutants", "--only", "drain-forgets", "--most", "1", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)["mutants"]
    assert (told["caught"], told["of"]) == (0, 1)
    assert main(["lab", "mutants", "--only", "nonsense"]) == 2
