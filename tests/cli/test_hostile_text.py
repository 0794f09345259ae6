"""Nothing that others write reaches a terminal, a pipe or a log as anything but visible text."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from stepkeep.cli.main import app
from stepkeep.cli.printer import json_text
from stepkeep.cli.render.consoles import InertConsole
from stepkeep.cli.streams import InertFormatter, traceback_lines
from tests.cli import hostile
from tests.cli.conftest import Cli
from tests.cli.hostile import HOSTILE, MARK
from tests.cli.surface import commands
from tests.suites import every
from tests.workbench import wait_until

ROOT = Path(__file__).parents[2]
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]"
)
OURS = re.compile(r"\x1b\[(?!95;53)[0-9;]*m|\x1b\[\?25[lh]|\r?\x1b\[(?:2K|1A)|\r\n")
"""What Rich writes for the colours and the moving parts of our pictures. The hostile text has none of these."""


class Answers(BaseHTTPRequestHandler):
    """A server that answers every request with an error in hostile words."""

    def do_GET(self) -> None:
        body = HOSTILE.encode()
        self.send_response(500)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's word
        return None


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def environment(**more: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("STEPKEEP_") and name != "NO_COLOR"
    }
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", **more}


def parts(said: str) -> list[tuple[list[str], str]]:
    """What each command said, by its words."""
    found = []
    for part in said.split(f"\n{MARK}")[1:]:
        words, _, rest = part.partition("\n")
        found.append((json.loads(words), rest))
    return found


def looked_at(said: str, *, wrapped: bool = False) -> None:
    """Fail on the first command whose words hold a control character, or a line that was forged.

    A terminal wraps long lines where it likes, so that any word may come first on one.
    """
    for words, rest in parts(said):
        raw = CONTROL.search(rest)
        assert raw is None, f"{words}: {rest[max(0, raw.start() - 200) : raw.end() + 60]!r}" if raw else ""
        forged = [line for line in rest.splitlines() if line.startswith("forged.yaml:1:1")]
        assert wrapped or not forged, words


def test_every_command_is_tried() -> None:
    """A command that is new fails here until `hostile.cases` has it."""
    tree = ast.parse(Path(hostile.__file__).read_text())
    [table] = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "plain"
    ]
    assert isinstance(table, ast.Dict)
    assert {ast.literal_eval(key) for key in table.keys if key is not None} == {path for path, _ in commands(app)}


@every(15)
def test_no_command_lets_a_control_character_into_a_pipe(tmp_path: Path, port: int, nth: int) -> None:
    command = [sys.executable, "-m", "tests.cli.hostile", str(tmp_path), str(port), str(nth)]
    ran = subprocess.run(command, capture_output=True, env=environment(COLUMNS="300"), check=False, timeout=600)
    out, err = ran.stdout.decode(), ran.stderr.decode()
    assert ran.returncode == 0, err[-3000:]
    looked_at(out)
    looked_at(err)
    told = {tuple(words): rest for words, rest in parts(out)}
    assert max(map(len, (rest for words, rest in told.items() if "--json" not in words and words[0] != "log"))) < 60_000
    shown = [rest for words, rest in told.items() if words[:2] != ("log", "export")]
    assert sum("\\x1b]0;PWNED" in rest for rest in shown) > 20 // nth, "nothing hostile was shown at all"
    for words, rest in told.items():
        if "--json" in words and rest.strip():
            json.loads(rest)
    exported = [json.loads(line) for line in told["log", "export", "--all"].splitlines() if line]
    assert any(HOSTILE.partition("\n")[0] in json.loads(f'"{text}"') for text in _texts(exported)), (
        "values were changed"
    )


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value, as JSON writes it."""
    if isinstance(value, str):
        yield json.dumps(value)[1:-1]
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(inner)


@every(15)
def test_no_command_lets_a_control_character_onto_a_terminal(tmp_path: Path, port: int, nth: int) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tests.cli.hostile", str(tmp_path), str(port), str(nth)]
    child = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(TERM="xterm-256color", COLUMNS="100")
    )
    os.close(theirs)
    shown = b"".join(_arriving(ours))
    os.close(ours)
    assert child.wait(60) == 0
    text = shown.decode()
    assert "\x1b[" in text, "this was no terminal"
    looked_at(OURS.sub(lambda found: "\n" if found[0] == "\r\n" else "", text), wrapped=True)


def _arriving(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # the other end is closed
            return
        if not data:
            return
        yield data


def test_a_workers_log_has_one_escaped_line_for_each_record(cli: Cli, home: Path, port: int) -> None:
    hostile.write_files(port)
    for name in ("speak", "fail", "again", "odd", "http", "command"):
        assert cli("start", f"{name}.json", "--handlers-elsewhere").status == 0
    worker = subprocess.Popen(
        [sys.executable, "-m", "stepkeep", "worker", "--app", "hostile_app.py", "--http-allow", "127.0.0.1"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )

    def settled() -> bool:
        return all(run["state"] in ("succeeded", "failed") for run in cli("runs", "--json").json["runs"])

    try:
        wait_until(settled, 60)
    finally:
        worker.send_signal(signal.SIGTERM)
        out, err = worker.communicate(timeout=60)
    log = (out + err).decode()
    assert CONTROL.search(log) is None
    assert "\\x1b]0;PWNED" in log
    assert not [line for line in log.splitlines() if line.startswith("forged.yaml")]
    assert "--- Logging error ---" not in log


# -- the parts -------------------------------------------------------------------------------------------------------
class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit(HOSTILE)


class BadArgument:
    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


@pytest.mark.parametrize("arguments", [(), (1,), (BadArgument(),), ({"a": BadArgument()},), (HOSTILE, HOSTILE)])
@pytest.mark.parametrize("message", ["plain", "%s", "%(a)s", "%d %d", HOSTILE, 5, BadArgument()])
def test_no_record_breaks_the_formatter(message: Any, arguments: tuple[Any, ...]) -> None:
    record = logging.LogRecord(HOSTILE, logging.ERROR, "file", 1, message, arguments, None)
    try:
        raise Unprintable from ValueError(HOSTILE)
    except Unprintable:
        record.exc_info = sys.exc_info()
    said = InertFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s").format(record)
    assert CONTROL.search(said) is None
    first, *rest = said.split("\n")
    assert "ERROR" in first
    assert rest
    assert all(line.startswith("    ") for line in rest)


def test_a_traceback_is_bounded() -> None:
    def deeper(level: int) -> None:
        if level:
            deeper(level - 1)
        raise ValueError("x\n" * 5000)

    with pytest.raises(ValueError, match="x") as found:
        deeper(3)
    assert len(list(traceback_lines(found.value))) <= 201


def test_a_console_escapes_what_is_printed_without_a_thought() -> None:
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text
    from rich.tree import Tree

    written = io.StringIO()
    console = InertConsole(file=written, width=200, force_terminal=True)
    table = Table(HOSTILE, title=HOSTILE, caption=HOSTILE)
    table.add_row(HOSTILE, Text(HOSTILE))
    tree = Tree(HOSTILE)
    tree.add(Text(HOSTILE))
    for renderable in (HOSTILE, Text(HOSTILE), table, tree, Panel(HOSTILE, title=HOSTILE)):
        console.print(renderable)
    console.rule(HOSTILE)
    assert CONTROL.search(OURS.sub("", written.getvalue())) is None
    assert "\\x1b]0;PWNED" in written.getvalue()


def test_no_file_of_the_command_line_writes_to_a_stream_or_makes_a_console_by_itself() -> None:
    folder = ROOT / "src" / "stepkeep" / "cli"
    writers = {folder / "printer.py", folder / "streams.py", folder / "render" / "consoles.py"}
    for file in sorted(set(folder.rglob("*.py")) - writers):
        text = file.read_text()
        for word in (
            "from rich.text import",
            "rich.console import Console\n",
            " print(",
            ".write(f",
            "sys.stdout.write",
        ):
            in_type_checking = word.startswith("rich.console") and "if TYPE_CHECKING" in text
            ledger = file.name == "handlers.py"
            assert word not in text or in_type_checking or ledger, f"{file.name} has {word!r}: use the printer"


def test_json_has_the_same_value_and_no_control_character() -> None:
    value = {HOSTILE: [HOSTILE, "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")]}
    text = json_text(value)
    assert CONTROL.search(text) is None
    assert json.loads(text) == value
    assert json.loads(json_text({"file": "a\udcff"})) == {"file": "a\\udcff"}
