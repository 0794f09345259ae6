"""`stepkeep simulate FILE`: walk every failure path of a definition on a virtual clock. Runs and stores nothing.

Children are found in the program, beside the file, or in a database that the command line names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import replace

from stepkeep.cli.answering import open_engine
from stepkeep.cli.arguments import Apps, Input, Texts, WrittenAs, arg, opt
from stepkeep.cli.command import program
from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, console, quiet_stdout, say
from stepkeep.cli.session import DEFINITION_FILES, is_python, json_value, load_definition, load_handlers
from stepkeep.cli.settings import CommandNeeds, Settings
from stepkeep.kernel.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from stepkeep.definition.python.registry import Registry
    from stepkeep.kernel.definition import Definition, SubWorkflow
    from stepkeep.simulate.findings import Finding
    from stepkeep.simulate.report import ChildReport, Report

KINDS = ("stuck", "no-deadline", "uncompensated")


@program.command("simulate", CommandNeeds.NOTHING)
def simulate(
    settings: Settings,
    file: Annotated[str, arg("FILE", "A definition: YAML, JSON or FILE.py[:NAME].")],
    app: Apps = None,
    input: Input = None,  # noqa: A002 - the option's name
    as_: WrittenAs = None,
    tree: Annotated[bool, opt("--tree", "Show a tree of paths instead of a table.")] = False,
    pairs: Annotated[bool, opt("--pairs", "Let any two things go wrong together.")] = False,
    max_paths: Annotated[int, opt("--max-paths", "Walk at most this many paths.", min=1, max=1_000_000)] = 5_000,
    allow: Annotated[
        Texts, opt("--allow", "KIND", f"Accept a kind of finding: {', '.join(KINDS)}. Repeatable.")
    ] = None,
    only_serious: Annotated[
        bool, opt("--serious", "Show only serious findings, and the paths that lead to them.")
    ] = False,
) -> int:
    """Walk every failure path of a definition on a virtual clock, through the engine's own decisions.

    No handler runs. Children are walked too: those of the same program, NAME.yaml beside FILE, and with --db published
    ones. Otherwise no database is opened. Every step fails, times out and loses its workers; gates are rejected
    and left alone; hooks fail; the run is cancelled and times out at every point. Shows how each path ends and after
    what time. Exits 1 when a run may wait forever or leave its effects behind, for CI.
    """
    allowed = frozenset(allow or ())
    if unknown := allowed - set(KINDS):
        raise InvalidInput(f"--allow takes {', '.join(KINDS)}, not {', '.join(sorted(unknown))}.")
    report = _simulated(settings, file, app or [], input, as_, pairs, max_paths)
    own = [finding for finding in report.serious if finding.kind not in allowed]
    serious = own + [one for child in report.children for one in child.report.serious if one.kind not in allowed]
    status = FAILED if serious else SUCCEEDED
    if settings.json:
        answer({"file": file, "ok": status == SUCCEEDED, **report.plain()})
        return status
    _show(_only(report, own) if only_serious else report, tree, allowed)
    for child in report.children:
        _show_child(child, tree, allowed, only_serious)
    say(_verdict(file, report, len(serious)))
    return status


def _simulated(
    settings: Settings, file: str, apps: list[str], given: str | None, as_: str | None, pairs: bool, max_paths: int
) -> Report:
    import msgspec

    from stepkeep.simulate.report import simulate

    value = json_value(given, "--input")
    with quiet_stdout(settings.json):
        handlers = load_handlers(apps) if apps else None
        definition = load_definition(file, handlers, as_)
    with _progress(settings.json) as progress:
        report = simulate(
            definition,
            given=None if given is None else msgspec.json.encode(value),
            pairs=pairs,
            max_paths=max_paths,
            progress=progress,
            find=ChildDefinitions(settings, file, apps, handlers),
        )
    return _in_python(report) if is_python(file) else report


def _in_python(report: Report) -> Report:
    """The same report, in the words of a workflow that was written in Python."""
    from stepkeep.definition.findings import in_python

    told = [(one, *in_python((), one.message, one.hint)) for one in report.findings]
    return replace(report, findings=tuple(replace(one, message=said, hint=hint) for one, said, hint in told))


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, nothing elsewhere."""
    screen = console(stderr=True)
    if quiet or not screen.is_terminal:
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("walking paths"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("paths", total=None)

        def print_progress(done: int, total: int) -> None:
            if done % 10 == 0 or done == total:
                bar.update(task, completed=done, total=total)

        yield print_progress


def _only(report: Report, serious: list[Finding]) -> Report:
    """The report with these findings and their paths alone."""
    import msgspec

    paths = {path for finding in serious for path in finding.paths}
    endings = tuple(ending for ending in report.endings if ending.path in paths)
    return msgspec.structs.replace(report, endings=endings, findings=tuple(serious))


def _show(report: Report, tree: bool, allowed: frozenset[str]) -> None:
    from stepkeep.cli.render.endings import endings_table, endings_tree, findings_lines, legend
    from stepkeep.cli.render.look import span

    screen = console()
    if report.endings:
        screen.print(endings_tree(report) if tree else endings_table(report))
        screen.print(legend(report), soft_wrap=True)
    longest = span(report.longest.elapsed / 1_000_000)
    screen.print(f"longest time to an end: {longest}, when {report.longest.path}", soft_wrap=True, markup=False)
    if report.bounded:
        names = ", ".join(report.bounded)
        screen.print(f"walked with at most two elements: {names}", soft_wrap=True, markup=False)
    for line in findings_lines(report.findings, allowed):
        screen.print(line, soft_wrap=True)


def _show_child(child: ChildReport, tree: bool, allowed: frozenset[str], only_serious: bool) -> None:
    """A child in a few lines: its walk, where that was bounded, and what was found. `--tree` shows its paths."""
    from stepkeep.cli.render.endings import endings_tree, findings_lines

    report, screen = child.report, console()
    name = f"{report.definition.name} v{report.definition.version}"
    said = f"child {name}, started by {', '.join(child.started_by)}: {_walked(report)}"
    screen.print(said, soft_wrap=True, markup=False)
    if report.bounded:
        names = ", ".join(report.bounded)
        screen.print(f"walked with at most two elements in {name}: {names}", soft_wrap=True, markup=False)
    if tree and not only_serious:
        screen.print(endings_tree(report))
    for line in findings_lines(report.serious if only_serious else report.findings, allowed):
        screen.print(line, soft_wrap=True)


def _walked(report: Report) -> str:
    if report.unwalked:
        return f"a sample: {len(report.endings):,} paths walked, {report.unwalked:,} not (--max-paths)"
    return f"{len(report.endings):,} paths walked"


def _verdict(file: str, report: Report, serious: int) -> str:
    every = len(report.findings) + sum(len(child.report.findings) for child in report.children)
    advice = every - serious
    found = f"{_count(serious, 'serious finding')}, {_count(advice, 'remark')}" if every else "no findings"
    below = f" and {_count(len(report.children), 'child workflow')}" if report.children else ""
    return f"{file}{below}: {_walked(report)}, {found}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class ChildDefinitions:
    """Where children of one file are looked for, in this order: its program and those of `--app`, its folder under the
    name of the child, and the database of `--db`."""

    def __init__(self, settings: Settings, file: str, apps: Sequence[str], handlers: Registry | None) -> None:
        self._settings, self._file, self._apps, self._handlers = settings, file, apps, handlers
        self._programs: dict[str, Definition] | None = None

    def __call__(self, child: SubWorkflow) -> Definition | None:
        found = self._programs_of().get(child.workflow) or self._beside(child.workflow)
        if found is not None and child.version in (0, found.version):
            return found
        return asyncio.run(self._published(child)) if "db" in self._settings.typed else None

    def _programs_of(self) -> dict[str, Definition]:
        if self._programs is None:
            from stepkeep.definition.python.handlers import load_app
            from stepkeep.definition.python.workflow import workflows_in

            own = [f"{self._file.partition('.py:')[0].removesuffix('.py')}.py"] if is_python(self._file) else []
            modules = [load_app(one) for one in (*own, *self._apps)]
            self._programs = {flow.name: flow.definition() for module in modules for flow in workflows_in(module)}
        return self._programs

    def _beside(self, name: str) -> Definition | None:
        """The definition in `NAME.yaml` or another ending, in the folder of the file."""
        folder = Path(self._file).parent
        for ending in DEFINITION_FILES if Path(name).name == name else ():
            path = folder / f"{name}{ending}"
            if path.is_file():
                found = load_definition(str(path), self._handlers)
                return found if found.name == name else None
        return None

    async def _published(self, child: SubWorkflow) -> Definition | None:
        from stepkeep.operations.definitions.publish import find_plan

        async with open_engine(self._settings, operation="definitions") as engine:
            try:
                plan = await find_plan(engine.transactor, child.workflow, child.version or None, tenant=engine.tenant)
            except NotFound:
                return None
            return plan.definition
