"""Evidence packs of simulated runs: the true ones verify, and each altered one is refused."""

from __future__ import annotations

import pytest
from tests.suites import in_proof

from stepkeep_lab.forgeries.packs import ALTERATIONS, FEATURES, Packs, check_packs


@pytest.fixture(scope="module", params=[(0, 1, 65), in_proof((100, 12, 400))], ids="{0[1]} seeds".format)
def result(request: pytest.FixtureRequest) -> Packs:
    first, seeds, alterations = request.param
    return check_packs(seeds, first=first, alterations=alterations)


def test_a_true_pack_is_never_refused(result: Packs) -> None:
    assert result.accused == []
    assert result.packs >= 20
    wanted = set(FEATURES) - {"completed by hand", "with a key"}
    assert wanted <= set(result.features), "the runs have people, requests, escalation, delegation and composition"


def test_every_altered_pack_is_refused(result: Packs) -> None:
    assert result.missed == []
    assert len(result.tried) > len(ALTERATIONS) * 0.8, sorted(set(ALTERATIONS) - set(result.tried))
