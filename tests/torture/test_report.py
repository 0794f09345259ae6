"""The report says what was done, what was found, and what could not be run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.torture.campaign import SCENARIOS, Campaign, chosen, run_campaign
from stepkeep_lab.torture.report import as_json, line, page, write
from stepkeep_lab.torture.stage import Account

PASSED = Account(
    scenario="kill-storm",
    store="sqlite",
    verdict="passed",
    seconds=4.2,
    counts={"runs": 120, "lost": 0, "kills": 30, "late writes tried": 7},
    measures={"recovery s": 1.5},
)
NOT_RUN = Account(scenario="clock-skew", store="sqlite", verdict="not run", seconds=0.1, why="one clock for all")
FAILED = Account(scenario="soak", store="postgres", verdict="failed", seconds=9, findings=("memory grew",))


def campaign(*accounts: Account) -> Campaign:
    return Campaign(seed=7, seconds=5, took=60, versions={"sqlite": "3"}, accounts=accounts)


def test_the_page_has_seed_counts_verdicts_and_reasons(tmp_path: Path) -> None:
    found = campaign(PASSED, NOT_RUN)
    assert found.ok
    said = page(found)
    assert "seed 7" in said
    assert "| kill-storm | sqlite | passed | 120 | 0 |" in said
    assert "kills: 30" in said
    assert "Not run: one clock for all." in said
    assert SCENARIOS["kill-storm"].what in said
    write(found, tmp_path / "report")
    written = (tmp_path / "report" / "torture.json").read_bytes()
    assert msgspec.json.decode(written) == msgspec.json.decode(msgspec.json.encode(as_json(found)))
    assert "not run: one clock for all" in line(NOT_RUN)


def test_the_page_says_when_a_campaign_took_its_time() -> None:
    assert "as long as it takes" not in page(campaign(PASSED))
    assert "as long as it takes to strike everywhere" in page(replace(campaign(PASSED), thorough=True))


def test_a_campaign_in_which_nothing_was_run_proves_nothing() -> None:
    assert not campaign(NOT_RUN).ok


def test_one_finding_fails_the_campaign() -> None:
    found = campaign(PASSED, FAILED)
    assert not found.ok
    assert as_json(found)["ok"] is False
    assert "memory grew" in page(found)


def test_a_scenario_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="kill-storm"):
        chosen(["no-such-thing"])
    with pytest.raises(InvalidInput, match="sqlite, postgres"):
        run_campaign(seed=1, seconds=1, stores=("oracle",))
    assert list(chosen(["soak"])) == ["soak"]
