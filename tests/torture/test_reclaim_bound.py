"""Worker death to re-claim: the defaults keep the bound of lease + 1 s by themselves, with a single survivor."""

from __future__ import annotations

from stepkeep.worker.loop import SWEEP_SPREAD
from stepkeep.worker.runtime import Runtime
from stepkeep.worker.settings import Settings


class Unlucky(Runtime):
    def chance(self) -> float:
        return 1.0


def test_the_longest_pause_between_two_sweeps_leaves_room_for_the_claim_within_a_second() -> None:
    assert Unlucky().spread(Settings().sweep_seconds, by=SWEEP_SPREAD) <= 0.9
