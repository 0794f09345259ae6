"""Relays in the simulation: crashes between send and report, lost answers, dead events, and planted bugs."""

from __future__ import annotations

import pytest
from tests.suites import in_proof, short_and_all

from stepkeep_lab.simulation.mutation import Mutant, planted
from stepkeep_lab.simulation.relay_mutants import RELAY_MUTANTS
from stepkeep_lab.simulation.run_seed import run_seed
from stepkeep_lab.simulation.scenario import draw, with_sinks

QUICK = next(mutant for mutant in RELAY_MUTANTS if mutant.name == "relay-skips-failed")

MOST = 10
"""The seeds within which each planted bug is found."""


@pytest.mark.parametrize("seeds", [range(1), in_proof(range(1, 150))], ids=["short", "long"])
def test_every_event_arrives_in_order_whatever_happens_to_relays(seeds: range) -> None:
    delivered = 0
    for seed in seeds:
        result = run_seed(with_sinks(seed))
        assert result.violations == (), seed
        delivered += result.met["events delivered"]
    assert delivered > 20 * len(seeds)


def test_a_run_that_its_first_message_ends_tells_its_hooks() -> None:
    """The cursors that a run brings were made before its first messages."""
    assert run_seed(with_sinks(1048)).violations == ()


def test_a_claim_that_was_lost_in_trouble_may_send_once_more() -> None:
    assert run_seed(with_sinks(1001)).violations == ()


def test_other_scenarios_have_no_sinks() -> None:
    assert {draw(seed).sinks for seed in range(50)} == {0}


@pytest.mark.parametrize("mutant", short_and_all([QUICK], RELAY_MUTANTS, name=lambda mutant: mutant.name))
def test_a_planted_bug_of_the_relay_is_found(mutant: Mutant) -> None:
    with planted(mutant):
        assert any(run_seed(with_sinks(seed)).violations for seed in range(MOST)), mutant.what
