"""The list of long checks: every folder of tests is in it, and a result counts for what its part depends on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.proof import LONGEST_MINUTES, TESTS, Part, Result, chosen, code, parts, problem, results, run

FOLDER = Path(__file__).parent
PART = Part("stores", 5, ("python", "--version"))


def result(*, ok: bool = True, code: str = "now") -> Result:
    return Result(
        code=code, commit="abc", ok=ok, seconds=1.0, command="python --version", first_line="", last_line="3 missed"
    )


def test_every_folder_of_tests_is_in_one_part() -> None:
    folders = {path.relative_to(FOLDER).parts[0] for path in FOLDER.glob("*/**/test_*.py")}
    files = {path.name for path in FOLDER.glob("test_*.py") if "pytest.mark.proof" in path.read_text(encoding="utf-8")}
    named = [name for names in TESTS for name in names.split()]
    assert sorted(named) == sorted(folders | files - {Path(__file__).name})


def test_no_part_takes_more_than_its_time() -> None:
    assert max(part.minutes for part in parts()) <= LONGEST_MINUTES


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ({}, "was never run"),
        ({"stores": result(ok=False)}, "failed at abc: 3 missed"),
        ({"stores": result(code="before")}, "is of other code, at abc"),
        ({"stores": result()}, None),
    ],
)
def test_a_part_counts_if_it_passed_on_this_code(kept: dict[str, Result], said: str | None) -> None:
    assert problem(PART, kept, "now") == said


def git(*words: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    subprocess.run(["git", *who, *words], check=True, capture_output=True)


def commit(**files: str) -> None:
    for name, text in files.items():
        Path(name).mkdir(exist_ok=True)
        (Path(name) / "file.py").write_text(text)
    git("add", ".")
    git("commit", "-m", "one")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    git("init")
    commit(src="1", tests="1", docs="1")


@pytest.mark.usefixtures("repository")
def test_a_change_voids_the_parts_that_depend_on_it_alone() -> None:
    simulation, tests = Part("simulation", 1, (), ("src",)), Part("tests", 1, (), ("src", "tests"))
    first = [code(simulation), code(tests)]
    commit(docs="2")
    assert [code(simulation), code(tests)] == first
    commit(tests="2")
    assert code(simulation) == first[0]
    assert code(tests) != first[1]
    commit(src="2")
    assert code(simulation) != first[0]


@pytest.mark.usefixtures("repository")
def test_a_proof_is_of_what_is_committed() -> None:
    Path("src/file.py").write_text("2")
    with pytest.raises(InvalidInput, match=r"not committed: M src/file.py"):
        code(PART)
    assert code(PART._replace(of=("tests",)))


@pytest.mark.usefixtures("repository")
def test_a_part_that_passed_is_not_run_again_until_its_code_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("stepkeep_lab.proof.parts", lambda: [PART._replace(command=(sys.executable, "-c", "print(7)"))])
    file = Path("docs/proof.json")
    assert run((), told=said.append, file=file)
    assert (results(file)["stores"].first_line, said[-1][:15]) == ("7", "stores: passed ")
    assert run((), told=said.append, file=file)
    assert said[-1] == "stores: passed before on this code"
    commit(src="2")
    assert run((), told=said.append, file=file)
    assert said[-1].startswith("stores: passed in")


@pytest.mark.usefixtures("repository")
def test_a_result_of_code_that_changed_meanwhile_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    edit = "import subprocess; subprocess.run(['git', 'rm', '-rq', 'src']); "
    edit += "subprocess.run(['git', '-c', 'user.name=n', '-c', 'user.email=n@example.org', 'commit', '-qm', 'two'])"
    monkeypatch.setattr("stepkeep_lab.proof.parts", lambda: [PART._replace(command=(sys.executable, "-c", edit))])
    assert not run((), told=lambda said: None, file=Path("docs/proof.json"))
    assert results(Path("docs/proof.json"))["stores"].last_line == "the code was changed while it ran"


def test_a_part_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"no part 'nothing'. Choose from: golden, golden-lives"):
        chosen(["nothing"])
