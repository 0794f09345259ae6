"""The report of `stepkeep simulate` for people: a table or a tree of endings, then what is wrong. From values to rich.

Paths that end alike stand in one row; those with a second deviation are gathered by it, whatever came first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from rich.table import Table
from rich.tree import Tree

from stepkeep.cli.render.consoles import Text
from stepkeep.cli.render.look import look, span, style, words

if TYPE_CHECKING:
    from stepkeep.simulate.endings import Ending
    from stepkeep.simulate.findings import Finding
    from stepkeep.simulate.report import Report

MANY_STEPS = 12
MOST_ROWS = 80
MOST_FINDINGS = 40
MICROS = 1_000_000
NAMED = 3


def endings_table(report: Report) -> Table:
    """One row for all paths that go wrong in the same place and end alike."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("WHAT HAPPENS", overflow="fold", ratio=3)
    table.add_column("RUN")
    table.add_column("STEPS", no_wrap=True)
    table.add_column("LEFT BEHIND", overflow="fold", ratio=1)
    table.add_column("TAKES", no_wrap=True)
    groups = list(_groups(report.endings))
    for group in groups[:MOST_ROWS]:
        table.add_row(*_row(group, report.steps))
    if len(groups) > MOST_ROWS:
        table.add_row(Text(f"… and {len(groups) - MOST_ROWS:,} more rows; --json has them all", "dim"))
    return table


def _groups(endings: Sequence[Ending]) -> Iterator[list[Ending]]:
    found: dict[object, list[Ending]] = {}
    for ending in endings:
        last = ending.deviations[-1] if ending.deviations else None
        where = None if last is None else (last.place.part, last.step, last.fate if last.step is None else "")
        outcome = (ending.state, ending.rollback, ending.ended, ending.left, ending.irreversible, ending.in_doubt)
        if len(ending.deviations) == 2:
            found.setdefault((where, outcome), []).append(ending)
        else:
            found.setdefault((where, outcome, ending.states), []).append(ending)
    yield from sorted(found.values(), key=lambda group: len(group[0].deviations))


def _row(group: Sequence[Ending], names: Sequence[str]) -> tuple[Text, ...]:
    ending = group[0]
    alike = len({(one.states, one.undone) for one in group}) == 1
    return (
        Text(_what(group)),
        _state(ending),
        _steps(ending, names) if alike else Text("…", "dim"),
        _left(ending),
        Text(_time(group)),
    )


def _what(group: Sequence[Ending]) -> str:
    """All deviations of a group in one sentence: `ship fails for good, times out`."""
    first = group[0]
    if not first.deviations:
        return first.path
    lasts = list(dict.fromkeys(ending.deviations[-1].text for ending in group))
    text = _folded(lasts)
    befores = list(dict.fromkeys(ending.deviations[0].text for ending in group if len(ending.deviations) == 2))
    if not befores:
        return text
    return f"{befores[0]}, then {text}" if len(befores) == 1 else f"after {len(befores):,} of these: {text}"


def _folded(texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    split = [text.split(" ") for text in texts]
    alike = takewhile(lambda column: len(set(column)) == 1, zip(*split, strict=False))
    common = [column[0] for column in alike]
    rest = [" ".join(parts[len(common) :]) for parts in split]
    if len(rest) > NAMED + 2:
        rest = [*rest[:NAMED], f"and {len(rest) - NAMED:,} more"]
    return " ".join([*common, ", ".join(rest)])


def _state(ending: Ending) -> Text:
    shown = look(ending.state)
    text = Text(f"{shown.mark} {shown.words}", shown.style)
    if not ending.ended:
        return Text(f"{shown.mark} {shown.words} forever", "bold red")
    if ending.rollback == "partial":
        text.append(", partly undone", "bold red")
    return text


def _steps(ending: Ending, names: Sequence[str]) -> Text:
    """Each step's mark in plan order; of many, how many ended how."""
    if len(ending.states) <= MANY_STEPS:
        shown = [
            "rolled_back" if name in ending.undone else state for name, state in zip(names, ending.states, strict=True)
        ]
        return Text("").join(Text(look(state).mark, style(state)) for state in shown)
    counts = ending.counts()
    return Text(" ").join(Text(f"{number:,}{look(state).mark}", style(state)) for state, number in counts.items())


def _left(ending: Ending) -> Text:
    parts = [Text(_names(ending.left), "red")] if ending.left else []
    if ending.irreversible:
        parts.append(Text(f"{_names(ending.irreversible)} (irreversible)", "yellow"))
    if ending.in_doubt:
        parts.append(Text(f"{_names(ending.in_doubt)}?", "yellow"))
    if ending.waits:
        parts.append(Text(f"waits: {_names(ending.waits)}", "bold red"))
    return Text(", ").join(parts)


def _names(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _time(group: Iterable[Ending]) -> str:
    times = sorted({ending.elapsed / MICROS for ending in group if ending.ended})
    if not times:
        return "∞"
    low, high = _span(times[0]), _span(times[-1])
    return high if low == high else f"{low} – {high}"


def _span(seconds: float) -> str:
    return "0s" if seconds < 0.001 else span(seconds)


def endings_tree(report: Report) -> Tree:
    """What may happen in the order of the path on which all goes well; what may follow hangs below it."""
    root = Tree(Text(f"{report.definition.name} v{report.definition.version}", "bold"))
    branches: dict[str, Tree] = {}
    shown = 0
    for ending in report.endings:
        first = ending.deviations[0].text if ending.deviations else ending.path
        if len(ending.deviations) < 2:
            branches[first] = root.add(_leaf(first, ending, report.steps))
        elif shown < 4 * MOST_ROWS:
            parent = branches.get(first) or branches.setdefault(first, root.add(Text(first)))
            parent.add(_leaf(ending.deviations[1].text, ending, report.steps))
            shown += 1
    hidden = sum(len(ending.deviations) == 2 for ending in report.endings) - shown
    if hidden:
        root.add(Text(f"… and {hidden:,} more with two deviations; --json has them all", "dim"))
    return root


def _leaf(text: str, ending: Ending, names: Sequence[str]) -> Text:
    parts = [Text(text), Text("→"), _state(ending), _steps(ending, names), Text(_time([ending]), "dim")]
    if left := _left(ending):
        parts.append(Text("left: ").append_text(left))
    return Text(" ").join(parts)


def findings_lines(found: Sequence[Finding], allowed: frozenset[str]) -> Iterator[Text]:
    """Each finding with what to do about it, the serious ones first."""
    for finding in found[:MOST_FINDINGS]:
        serious = finding.serious and finding.kind not in allowed
        mark = Text(" ✗ " if serious else " · ", "bold red" if serious else "yellow")
        mark.append(f"{finding.kind}: ", "bold" if serious else "")
        yield mark.append(finding.message, "").append(f" {finding.hint}", "dim")
    if len(found) > MOST_FINDINGS:
        yield Text(f"   … and {len(found) - MOST_FINDINGS:,} more; --json has them all", "dim")


def legend(report: Report) -> Text:
    """What the marks in the STEPS column mean, in the order of the steps."""
    seen = dict.fromkeys(state for ending in report.endings for state in ending.states)
    marks = "  ".join(f"{look(state).mark} {words(state)}" for state in seen) + f"  {look('rolled_back').mark} undone"
    steps = ", ".join(f"{place} {name}" for place, name in enumerate(report.steps, 1))
    named = steps if len(report.steps) <= MANY_STEPS else _names(report.steps)
    return Text(f"steps in order: {named}   {marks}   name? may have happened", "dim")
