"""The documented interface and the program are the same thing."""

from __future__ import annotations

import os

import pytest

from stepkeep.cli import failures, printer
from stepkeep.cli.main import app
from tests.cli.reference import MARK, PAGE, SHARED, reference
from tests.cli.surface import commands, options


def test_the_reference_part_of_the_page_is_what_the_program_says() -> None:
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(MARK)
    if os.environ.get("STEPKEEP_WRITE_GOLDEN"):
        PAGE.write_text(head + MARK + reference(app), encoding="utf-8")
        return
    assert rest == reference(app)


@pytest.mark.parametrize(("path", "command"), list(commands(app)), ids=lambda value: str(value)[:40])
def test_every_command_and_option_is_documented(path: tuple[str, ...], command: object) -> None:
    page = PAGE.read_text(encoding="utf-8")
    shared = page.partition("## Exit status")[0]
    section = page.partition(f"### `stepkeep {' '.join(path)}`\n")[2].partition("\n### ")[0]
    assert section
    for name in options(command):
        where = shared if name.removeprefix("--") in SHARED else section
        assert f"`{name}" in where or f"[{name}]" in where, f"{name} of {' '.join(path)} is not documented"


def test_every_exit_status_and_error_code_is_documented() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for number in (printer.SUCCEEDED, printer.FAILED, printer.BAD_USAGE, printer.CANCELLED, printer.UNFINISHED):
        assert f"| {number} |" in page
    for code in _codes():
        assert f"`{code}`" in page


def _codes() -> set[str]:
    from stepkeep.kernel import errors

    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.StepkeepError)
    ]
    made = [kind([]) if kind is errors.DefinitionError else kind("x") for kind in kinds]
    return {failures.failure_of(error).code for error in made} | {"usage", "unexpected"}
