"""The files of the pages under their formatter, and under the type checker of TypeScript, which reads their JSDoc."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.npm_packages import need_package
from tests.system_programs import need_program
from tests.ui.declarations import FILE, declarations

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
UI = ROOT / "src" / "stepkeep" / "ui"
LONGEST_LINE = 160


def test_the_files_of_the_pages_are_formatted() -> None:
    formatter = need_package("prettier") / "bin" / "prettier.cjs"
    files = [f"{UI}/**/*.{kind}" for kind in ("js", "css", "html")]
    command = [need_program("node"), str(formatter), "--config", str(HERE / "prettier.json"), "--check", *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nrun `make format`"


def test_no_line_of_the_pages_is_longer_than_a_screen() -> None:
    long = [
        f"{path.relative_to(UI)}:{number}"
        for path in sorted(UI.rglob("*.*"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > LONGEST_LINE
    ]
    assert long == [], "the formatter breaks no text: put its parts into names"


def test_the_types_of_answers_are_those_of_the_service() -> None:
    assert FILE.read_text(encoding="utf-8") == declarations(), "run python -m tests.ui.declarations"


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
    assert "Cannot find name 'missing'" in _checked(tmp_path)


@pytest.mark.proof
def test_the_type_checker_finds_a_field_that_no_answer_has(tmp_path: Path) -> None:
    (tmp_path / "answers.d.ts").write_text(declarations())
    (tmp_path / "wrong.js").write_text(
        "/** @template {string} A @param {A} path @returns {Answers.Get<A>} */\n"
        "const get = (path) => /** @type {any} */ (path);\n"
        "get('/slots').slots[0].hold; get(`/runs/${Math.random()}`).run.state; "
        "get(`/runs/${1}/steps/${2}`).step.stat;\n"
    )
    done = _checked(tmp_path)
    assert [line.partition("Property ")[2].split()[0] for line in done.splitlines()] == ["'hold'", "'stat'"], done


@pytest.mark.proof
def test_the_type_checker_finds_a_parameter_that_no_operation_takes(tmp_path: Path) -> None:
    (tmp_path / "answers.d.ts").write_text(declarations())
    (tmp_path / "wrong.js").write_text(
        "/** @template {string} A @param {A} path @param {Answers.Query<A>} query */\n"
        "const get = (path, query) => [path, query];\n"
        "/** @template {string} A @param {A} path @param {Answers.Body<A>} body */\n"
        "const post = (path, body) => [path, body];\n"
        "get('/runs', { limit: 5, sate: 'failed' }); get(`/jobs/${1}/runs`, { limit: '5' });\n"
        "post('/slots', { most: 3, work: 'a' }); post(`/runs/${1}/cancel`, { reason: 'wrong order' });\n"
    )
    done = _checked(tmp_path)
    assert re.findall(r"'(\w+)' does not exist", done) == ["sate", "work"], done


def _checked(folder: Path) -> str:
    """What the type checker says of the modules in a folder."""
    settings = (HERE / "tsconfig.json").read_text().partition('"include"')[0]
    (folder / "tsconfig.json").write_text(settings + '"include": ["*.js", "*.d.ts"]}')
    compiler = need_package("typescript") / "bin" / "tsc"
    done = subprocess.run(
        [need_program("node"), str(compiler), "--project", str(folder / "tsconfig.json")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0
    return done.stdout
