"""Charts show who did more, and stay well-formed whatever the names are."""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from stepkeep_lab.bench.chart import Bar, Panel, as_svg, as_text, share

SVG = "{http://www.w3.org/2000/svg}"


def test_a_longer_bar_means_more() -> None:
    bars = [Bar("a", 10.0), Bar("b", 1_000.0), Bar("c", 2.0)]
    lengths = [share(bar.value, bars) for bar in bars]
    assert lengths[1] == 1.0
    assert lengths[1] > lengths[0] > lengths[2] > 0.0


def test_bars_of_one_size_are_all_of_full_length() -> None:
    assert share(10.0, [Bar("a", 10.0), Bar("b", 10.0)]) == 1.0


def test_text_has_a_line_for_every_bar_with_its_number() -> None:
    lines = as_text(Panel("runs", [Bar("ours", 12_345.6), Bar("theirs", 3.21)])).splitlines()
    assert len(lines) == 3
    assert lines[1].endswith("12,346")
    assert lines[2].endswith("3.21")
    assert lines[1].count("█") > lines[2].count("█")


def test_nothing_measured_is_said_and_not_drawn() -> None:
    assert "nothing was measured" in as_text(Panel("runs", []))
    drawn = Xml.fromstring(as_svg([Panel("runs", [Bar("none", 0.0)])]))
    assert drawn.findall(f"{SVG}text") == []


def test_svg_has_a_bar_for_each_and_survives_odd_names() -> None:
    drawn = Xml.fromstring(as_svg([Panel("a < b & c", [Bar("<x>", 5.0), Bar("y", 50.0)])]))
    words = [each.text for each in drawn.findall(f"{SVG}text")]
    assert "<x>" in words
    assert "a < b & c (logarithmic)" in words
    assert len(drawn.findall(f"{SVG}rect")) == 1 + 2
