"""A quick campaign: many seeds with faults and no violation, the same history each time, and enough of it met.

`STEPKEEP_SIMULATION_SEEDS` says how many seeds (200 by default); the full campaign is `stepkeep lab simulate`.
"""

import os
import subprocess
import sys

import pytest

from stepkeep.simulation.campaign import run_campaign
from stepkeep.simulation.coverage import table_rows
from stepkeep.simulation.play import play
from stepkeep.simulation.scenario import FAULTS, draw, with_changes

SEEDS = int(os.environ.get("STEPKEEP_SIMULATION_SEEDS", "200"))

OFTEN = 200
"""From so many seeds on a campaign must have met nearly everything."""


def test_no_seed_violates_anything_and_nearly_everything_is_met() -> None:
    campaign = run_campaign(SEEDS)
    assert campaign.failures == []
    assert campaign.seeds == SEEDS
    if SEEDS >= OFTEN:
        assert len(campaign.rows & table_rows()) >= len(table_rows()) - 8, campaign.unreached
        assert not [what for what in campaign.unreached if what.startswith("refusal")]
        assert len([what for what in campaign.unreached if what.startswith("fault")]) <= 2


def test_the_same_seed_gives_the_same_history_byte_for_byte() -> None:
    first = [play(draw(seed)).digest for seed in range(SEEDS)]
    again = [play(draw(seed)).digest for seed in range(SEEDS)]
    assert first == again
    assert len(set(first)) == SEEDS


TELL = "from stepkeep.simulation.play import play; from stepkeep.simulation.scenario import draw; "
TELL += "print([play(draw(seed)).digest for seed in range(12)])"


def test_another_process_with_another_hash_seed_tells_the_same_history() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", TELL],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


def test_without_faults_nothing_is_lost_fenced_or_unreachable() -> None:
    calm = dict.fromkeys(FAULTS, 0.0) | {"poison": 0.0, "cancel": 0.0, "hang": 0.0, "deaf": 0.0}
    for seed in range(20):
        result = play(with_changes(draw(seed), calm))
        assert result.ok, result.violations
        assert result.refusals["Fenced"] == 0
        assert result.met["a caller met StoreUnavailable"] == 0


def test_an_unknown_field_of_a_scenario_is_refused() -> None:
    with pytest.raises(ValueError, match="a scenario has no weather"):
        with_changes(draw(1), {"weather": 1})
