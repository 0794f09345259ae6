"""The modules of the pages under the type checker of TypeScript, which reads their JSDoc."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.npm_packages import need_package
from tests.system_programs import need_program

HERE = Path(__file__).parent


def test_the_type_checker_finds_nothing_in_the_modules() -> None:
    compiler = need_package("typescript") / "bin" / "tsc"
    done = subprocess.run(
        [need_program("node"), str(compiler), "--project", str(HERE / "tsconfig.json")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.proof
def test_the_type_checker_finds_a_name_that_is_not_there(tmp_path: Path) -> None:
    """The check can fail: a module that uses a function of another one wrongly is found."""
    (tmp_path / "wrong.js").write_text('import { span } from "./other.js";\nspan(missing);\n')
    (tmp_path / "other.js").write_text("/** @param {number} ms */\nexport const span = (ms) => ms;\n")
    settings = (HERE / "tsconfig.json").read_text().partition('"include"')[0]
    (tmp_path / "tsconfig.json").write_text(settings + '"include": ["*.js"]}')
    compiler = need_package("typescript") / "bin" / "tsc"
    done = subprocess.run(
        [need_program("node"), str(compiler), "--project", str(tmp_path / "tsconfig.json")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0
    assert "Cannot find name 'missing'" in done.stdout
