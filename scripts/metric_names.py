"""Writes the table of metrics in docs/observing.md from `metrics.names`. Run it after a change of a metric."""

from __future__ import annotations

from pathlib import Path

from stepkeep.metrics.families import METRICS

PAGE = Path(__file__).parents[1] / "docs" / "observing.md"
BEGIN, END = "<!-- metrics: written by scripts/metric_names.py -->\n", "<!-- end of metrics -->\n"


def table() -> str:
    """Every metric with its kind, labels and meaning."""
    rows = ["| metric | kind | labels | |", "|---|---|---|---|"]
    for one in METRICS.values():
        labels = ", ".join(f"`{label}`" for label in one.labels)
        rows.append(f"| `{one.name}` | {one.kind} | {labels} | {one.help} |")
    return "\n".join([*rows, ""])


def page() -> str:
    """The page with the table as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
