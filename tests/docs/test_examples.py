"""Code in README.md, in the documentation and in docstrings runs as it is shown.

Python blocks of one page run in order, in one namespace, as a reader would type them. Blocks whose fence says
`python no-run` are fragments. YAML blocks are definitions and pass `stepkeep check`. Shell lines that begin with
`stepkeep` are parsed by the program and not run.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.exceptions import TyperException

import stepkeep as sk
from stepkeep.cli.main import app
from stepkeep.definition.python.handlers import load_app
from stepkeep.definition.python.registry import default_registry
from tests.cli.surface import commands
from tests.docs.python_reference import SET_UP

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parent.parent.parent
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
SOURCES = tuple(folder for folder in (ROOT / "src", ROOT / "lab" / "src") if folder.is_dir())
MENTION = re.compile(r"`(stepkeep [^`|…\[]+)`")
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RUN_ELSEWHERE = {"docs/testing.md": "its blocks are pytest files, which tests/testing/test_plugin.py runs with pytest"}


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def code(self) -> Any:
        """Compiled with the line numbers of the page, so that an error names the line to mend."""
        return compile("\n" * self.line + self.text, str(self.page), "exec")


def blocks(*languages: str) -> list[Block]:
    texts = [(page, page.read_text(encoding="utf-8")) for page in PAGES]
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2])
        for page, text in texts
        for match in FENCE.finditer(text)
        if match[1] in languages
    ]


def python_pages() -> list[Path]:
    pages = {block.page: None for block in blocks("python")}
    return [page for page in pages if str(page.relative_to(ROOT)) not in RUN_ELSEWHERE]


def modules_with_examples() -> list[str]:
    return [
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        for folder in SOURCES
        for path in sorted(folder.rglob("*.py"))
        if ">>> " in path.read_text(encoding="utf-8")
    ]


def command_lines() -> list[tuple[str, str]]:
    """Where, and the command: every line of a shell block that calls `stepkeep`, without prompt and comment."""
    found: list[tuple[str, str]] = []
    for block in blocks("", "console", "sh", "bash"):
        for number, line in enumerate(block.text.splitlines(), block.line + 1):
            command = line.removeprefix("$ ")
            if command.startswith("stepkeep "):
                where = f"{block.page.relative_to(ROOT)}:{number}"
                found.extend((where, part.strip()) for part in command.split(" && ") if "stepkeep " in part)
    return found


def mentioned_commands() -> list[tuple[str, str]]:
    """Where, and the command: every command in the running text of a page. Forms with a choice (`list|set`) are left
    out."""
    found: list[tuple[str, str]] = []
    for page in PAGES:
        text = FENCE.sub(lambda match: "\n" * match[0].count("\n"), page.read_text(encoding="utf-8"))
        for match in MENTION.finditer(text):
            where = f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
            found.append((where, " ".join(match[1].split())))
    return found


@pytest.fixture
def own_folder(empty_registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory, and handlers that no other test sees."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("page", python_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_of_a_page_runs(page: Path) -> None:
    listed = [block for block in blocks("python") if block.page == page]
    assert listed
    namespace: dict[str, Any] = {"__name__": "page"}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in listed:
            exec(block.code(), namespace)
    for file in Path.cwd().glob("*.db"):
        with sk.open(f"sqlite:///{file.name}") as engine:
            shown = engine.show(engine.runs()["runs"][0]["id"])
            assert shown["run"]["state"] == "succeeded"
            # A flow that lets calls race cancels those that are late.
            assert {step["state"] for step in shown["steps"]} <= {"succeeded", "cancelled"}


@pytest.mark.usefixtures("own_folder")
def test_the_workflow_of_the_readme_sends_its_mail_with_the_handlers_of_the_examples(tmp_path: Path) -> None:
    [block] = [block for block in blocks("yaml") if block.page.name == "README.md"]
    file = tmp_path / "onboarding.yaml"
    file.write_text(block.text, encoding="utf-8")
    assert "--app examples/handlers.py" in block.page.read_text(encoding="utf-8")
    load_app(str(ROOT / "examples" / "handlers.py"))
    with sk.open("sqlite:///readme.db") as engine:
        run = engine.run(file, {"email": "a@example.com"})
        engine.approve(run.id, "sign-off")
        shown = engine.work_on(run.id).view["steps"]
    assert {step["name"]: step["state"] for step in shown if step["phase"] == "main"} == {
        "create-account": "succeeded",
        "sign-off": "succeeded",
        "send-welcome": "succeeded",
    }


def test_no_python_is_left_out_without_a_reason() -> None:
    assert blocks("python no-run") == []
    assert [page for page in RUN_ELSEWHERE if not (ROOT / page).exists()] == []
    assert blocks("py", "python3", "yml") == []
    examples = {str(block.page.relative_to(ROOT)) for block in blocks("pycon")}
    assert examples == {"docs/python.md"}, "these are docstrings, which run below"


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: block.name)
def test_a_definition_on_a_page_passes_the_check(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "definition.yaml"
    file.write_text(block.text, encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
        status = typer.main.get_command(app).main(["check", str(file)], standalone_mode=False)
    assert status == 0, said.getvalue()


@pytest.mark.parametrize("block", blocks("json", "jsonl"), ids=lambda block: block.name)
def test_json_on_a_page_is_json(block: Block) -> None:
    for text in block.text.splitlines() if block.language == "jsonl" else [block.text]:
        assert json.loads(text) is not None


@pytest.mark.parametrize(("where", "line"), command_lines(), ids=lambda value: value)
def test_a_command_on_a_page_is_one_that_the_program_takes(where: str, line: str) -> None:
    words = shlex.split(line.partition(" | ")[0].partition(" > ")[0], comments=True)[1:]
    known = dict(commands(app))
    path = max((path for path in known if words[: len(path)] == list(path)), key=len, default=None)
    assert path is not None, f"{where}: no such command"
    known[path].make_context(where, words[len(path) :])


def test_a_command_in_the_text_of_a_page_is_one_that_the_program_takes() -> None:
    """Its options exist, and it takes as many arguments. Words such as N stand for values of every kind."""
    known, wrong = dict(commands(app)), []
    for where, line in mentioned_commands():
        words = shlex.split(line)[1:]
        path = max((path for path in known if words[: len(path)] == list(path)), key=len, default=None)
        if path is None:
            is_known = words == ["--version"] or any(list(path[: len(words)]) == words for path in known)
            wrong += [] if is_known else [f"{where}: {line}: no such command"]
            continue
        try:
            known[path].make_context(where, words[len(path) :])
        except (typer.Exit, typer.BadParameter):
            continue  # help, a word that stands for a value, or a command without its arguments
        except TyperException as problem:
            wrong.append(f"{where}: {line}: {problem}")
    assert wrong == []


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_in_docstrings_run(name: str) -> None:
    module = importlib.import_module(name)
    attempted = 0
    # A blocking method has the docstring of its coroutine method: it runs once.
    examples = {example.docstring: example for example in Finder(exclude_empty=True).find(module, name)}
    for example in examples.values():
        with contextlib.ExitStack() as stack:
            if name.startswith("stepkeep.engine."):
                example.globs.update(stack.enter_context(scene()))
            runner = doctest.DocTestRunner()
            runner.run(example)
            attempted += runner.tries
            assert runner.failures == 0, example.name
    assert attempted > 0


class Finder(doctest.DocTestFinder):
    """Finds the examples of decorated methods, too."""

    def _from_module(self, module: Any, found: Any) -> bool:
        return super()._from_module(module, inspect.unwrap(found))


@contextlib.contextmanager
def scene() -> Iterator[dict[str, Any]]:
    """The names that examples of the engine use, on a database of their own."""
    for registered in (default_registry._handlers, default_registry._agents, default_registry._lifespans):
        registered.clear()
    for file in Path.cwd().glob("examples.db*"):
        file.unlink()
    names: dict[str, Any] = {}
    exec(SET_UP, names)
    try:
        yield {name: value for name, value in names.items() if not name.startswith("__")}
    finally:
        names["engine"].close()
