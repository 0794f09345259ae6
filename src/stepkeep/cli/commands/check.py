"""`stepkeep check FILE`: everything that is wrong with a definition, then advice. Runs and stores nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from stepkeep.cli.arguments import Apps, WrittenAs, arg, opt
from stepkeep.cli.failures import problem_view
from stepkeep.cli.printer import answer, say
from stepkeep.cli.session import is_python, load_handlers, workflow_in
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import BAD_USAGE, SUCCEEDED

if TYPE_CHECKING:
    from stepkeep.definition.native import CheckReport


def check(
    settings: Settings,
    file: Annotated[str, arg("FILE", "A definition: YAML, JSON or Python.")],
    app: Apps = None,
    as_: WrittenAs = None,
    strict: Annotated[bool, opt("--strict", "Let advice fail the check, too.")] = False,
    explain: Annotated[bool, opt("--explain", "Show the definition as the engine has it, with every default.")] = False,
) -> int:
    """Say everything that is wrong with a definition, with its place, and give advice.

    With --app, the names of handlers are checked, too.
    """
    report = _report(file, app or (), as_)
    status = BAD_USAGE if report.problems or (strict and report.warnings) else SUCCEEDED
    if settings.json:
        from stepkeep.cli.render.explained import plain_definition

        made = {"definition": plain_definition(report.definition)} if explain and report.definition else {}
        answer(
            made
            | {
                "file": file,
                "ok": status == SUCCEEDED,
                "workflow": None if report.definition is None else report.definition.name,
                "dialect": None if report.definition is None else report.definition.dialect,
                "version": None if report.definition is None else report.definition.version,
                "steps": None if report.definition is None else len(report.definition.steps),
                "problems": [problem_view(problem) for problem in report.problems],
                "warnings": [problem_view(warning) for warning in report.warnings],
            }
        )
        return status
    import msgspec

    for problem in report.problems:
        say(str(problem))
    for warning in report.warnings:
        say(str(msgspec.structs.replace(warning, message=f"warning: {warning.message}")))
    if explain and report.definition is not None:
        from stepkeep.cli.render.explained import explained

        for line in explained(report.definition, None if is_python(file) else file):
            say(line)
    say(_verdict(file, report))
    return status


def _report(file: str, apps: list[str] | tuple[()], as_: str | None) -> CheckReport:
    from stepkeep.dialects.registry import check_file

    handlers = load_handlers(apps) if apps else None
    return workflow_in(file).check() if is_python(file) else check_file(file, handlers, as_)


def _verdict(file: str, report: CheckReport) -> str:
    advice = _count(len(report.warnings), "warning")
    if report.definition is None:
        return f"{file}: {_count(len(report.problems), 'problem')}"
    name, version, steps = report.definition.name, report.definition.version, len(report.definition.steps)
    about = f"{name} version {version}, {_count(steps, 'step')}"
    return f"{file}: {about}, " + (f"no problems, {advice}" if report.warnings else "no problems")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
