"""A shortcut is switched off where it is named, and comes back afterwards."""

from __future__ import annotations

import pytest

from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.bench.ablation import SHORTCUTS, Gain, Shortcut, as_markdown, without


@pytest.mark.parametrize("shortcut", SHORTCUTS, ids=lambda shortcut: shortcut.name)
def test_a_shortcut_is_off_inside_the_block_alone(shortcut: Shortcut) -> None:
    before = getattr(shortcut.owner, shortcut.attribute)
    assert before is not shortcut.instead
    with without([shortcut.name]):
        assert getattr(shortcut.owner, shortcut.attribute) is shortcut.instead
    assert getattr(shortcut.owner, shortcut.attribute) is before


def test_an_unknown_shortcut_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="remembered-rows"), without(["no such thing"]):
        pass


def test_the_table_has_a_line_for_every_gain() -> None:
    gain = Gain(
        shortcut="s", work="3-step runs", store="sqlite", figure="p50_ms", with_it=2.0, without_it=3.0, ratio=1.5
    )
    assert "| s | 3-step runs | sqlite | p50_ms | 2.0 | 3.0 | 1.50 |" in as_markdown([gain], 1)
