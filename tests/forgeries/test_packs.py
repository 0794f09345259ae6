"""Evidence packs of simulated runs: the true ones verify, and each altered one is refused."""

from __future__ import annotations

import pytest

from stepkeep_lab.forgeries.packs import ALTERATIONS, FEATURES, Packs, check_packs


@pytest.fixture(scope="module")
def result() -> Packs:
    return check_packs(1, first=3, alterations=65)


def test_a_true_pack_is_never_refused(result: Packs) -> None:
    assert result.accused == []
    assert result.packs >= 20
    wanted = set(FEATURES) - {"completed by hand", "with a key"}
    assert wanted <= set(result.features), "the runs have people, requests, escalation, delegation and composition"


def test_every_altered_pack_is_refused(result: Packs) -> None:
    assert result.missed == []
    assert len(result.tried) > len(ALTERATIONS) * 0.8, sorted(set(ALTERATIONS) - set(result.tried))
