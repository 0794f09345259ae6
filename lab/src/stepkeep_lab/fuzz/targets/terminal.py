"""The terminal: hostile text in every field that people and handlers can set, through the command line.

Judges what reaches the streams: no control character, no line that the text forged, no traceback. The judge goes by
Unicode's own categories and shares nothing with the module that escapes.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import msgspec

from stepkeep_lab.fuzz.chance import CONTROLS, shorter, shorter_text
from stepkeep_lab.fuzz.program import Said, run_command
from stepkeep_lab.fuzz.target import Limits, Target, Verdict, broken

STATUSES = frozenset(range(5))
ACTIVE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
FORGED = "forged.yaml:1:1: all is well"
PIECES = (
    *CONTROLS,
    f"\n{FORGED}\n",
    "[/] [bold]x[/bold]",
    "[link=https://example.com]y[/link]",
    "\t",
    "a",
    "é",
    "x" * 300,
)
APP = """
import stepkeep as sk

@sk.step("terminal.echo")
def echo(value):
    return {value: [value, {value: value}]}

@sk.step("terminal.fail")
def fail(value):
    raise RuntimeError(value)

@sk.step("terminal.refuse")
def refuse(value):
    raise sk.fail(value, category="validation")
"""
COMMANDS = (
    "check {file}",
    "check {file} --json",
    "check {bad}",
    "check {bad} --json",
    "check {bad} --as ioa",
    "check {hostile}.yaml",
    "simulate {file}",
    "runs",
    "runs --json",
    "runs --as workstream",
    "runs --workflow {hostile}",
    "runs --business-key {hostile}",
    "show {run}",
    "show {run} --json",
    "show {run} --as ioa",
    "show {run} --as action",
    "show {run} --as linear",
    "show {hostile}",
    "show {run} --as {hostile}",
    "show {run} --db {hostile}",
    "show {run} --tenant {hostile}",
    "certify {run}",
    "certify {run} --json",
    "workers",
    "approvals --by {hostile}",
    "approvals --cursor {hostile}",
    "approve {run} {hostile}",
    "approve {run} --comment {hostile}",
    "reject {run} --comment {hostile} --json",
    "cancel {run} --reason {hostile}",
    "send {run} {hostile}",
    "send {run} go --payload {json}",
    "send {run} go --id {hostile}",
    "complete {run} misbehave --token {hostile} --notes {hostile}",
    "start {file} --input {json} --idempotency-key {hostile}",
    "start {hostile}",
    "start {file} --input {hostile}",
    "rerun {run} --no-wait --idempotency-key {hostile}",
    "log verify {bad}",
    "log verify {hostile}",
    "log export {hostile}",
    "prune --dry-run --keep 1 --workflow {hostile}",
    "db status --db sqlite:///{hostile}",
    "worker --app {hostile}",
    "run {file} --app {hostile}",
    "{hostile}",
    "runs --{hostile}",
)
STEPS = ("echo", "fail", "refuse", "gate", "wait", "command")


class Screen(msgspec.Struct, frozen=True):
    """A text, the step that brings it into a run, and the commands that show it."""

    text: str
    step: str
    commands: tuple[str, ...]


class Terminal(Target[Screen]):
    name = "terminal"
    what = (
        "Control sequences and forged lines in definitions, keys, outputs, errors, comments, arguments and file names."
    )
    holds = "No command writes a raw control character or a line that the text forged, and none ends in a traceback."
    limits = Limits(cpu_seconds=15.0, wall_seconds=60.0, memory_mb=1_000, batch=40)

    def __init__(self, run: Callable[[Sequence[str]], Said] = run_command) -> None:
        self._run = run
        self._folder = Path()
        self._played = 0

    def open(self, folder: Path) -> None:
        self._folder = folder
        (folder / "app.py").write_text(APP, encoding="utf-8")

    def generate(self, random: Random) -> Screen:
        text = "".join(random.choice(PIECES) for _ in range(random.randint(1, 4)))
        return Screen(text, random.choice(STEPS), tuple(random.sample(COMMANDS, 4)))

    def check(self, case: Screen) -> Verdict:
        self._played += 1
        here = self._folder / str(self._played)
        here.mkdir()
        file = _named(here, case.text)
        file.write_text(json.dumps(_document(case)), encoding="utf-8")
        bad = here / "bad.json"
        bad.write_text(
            json.dumps({case.text: case.text, "steps": [{case.text: 1, "name": case.text}]}), encoding="utf-8"
        )
        database = f"sqlite:///{here}/terminal.db"
        given = json.dumps({"value": case.text})
        first = ["run", str(file), "--app", str(self._folder / "app.py"), "--input", given]
        texts = {"file": str(file), "bad": str(bad), "hostile": case.text, "json": given, "run": "0000"}
        verdict = self._shown("run {file}", [*first, "--db", database])
        if verdict.promise:
            return verdict
        runs = json.loads(self._run(["runs", "--json", "--db", database]).out).get("runs") or [{"id": "0000"}]
        texts["run"] = runs[0]["id"]
        for command in case.commands:
            arguments = [_filled(word, texts) for word in command.split()]
            if "--db" not in arguments and not command.startswith(("{", "log verify", "check", "simulate")):
                arguments += ["--db", database]
            verdict = self._shown(command, arguments)
            if verdict.promise:
                return verdict
        return Verdict(outcome=f"{case.step} shown")

    def _shown(self, told: str, arguments: list[str]) -> Verdict:
        said = self._run(arguments)
        if said.status not in STATUSES or not said.is_in_words:
            return broken("ends in words", f"{told}: status {said.status}: {said.err[-400:].decode(errors='replace')}")
        for stream in (said.out, said.err):
            shown = stream.decode(errors="surrogateescape")
            for line in shown.split("\n"):
                if line.startswith(FORGED):
                    return broken("writes no forged line", f"{told}: {line[:200]}")
            if active := next((at for at, letter in enumerate(shown) if _is_active(letter)), None):
                around = ascii(shown[max(0, active - 60) : active + 20])
                return broken("writes no control character", f"{told}: {around}")
        return Verdict(outcome="shown")

    def show(self, case: Screen) -> str:
        return f"{case.text!r} through {case.step}: {'; '.join(case.commands)}"

    def smaller(self, case: Screen) -> Iterator[Screen]:
        for commands in shorter(case.commands):
            yield msgspec.structs.replace(case, commands=tuple(commands))
        for text in shorter_text(case.text):
            if text:
                yield msgspec.structs.replace(case, text=text)


def _is_active(letter: str) -> bool:
    return letter not in "\n\t" and unicodedata.category(letter) in ACTIVE


def _filled(word: str, texts: dict[str, str]) -> str:
    for name, text in texts.items():
        word = word.replace(f"{{{name}}}", text)
    return word


def _named(folder: Path, text: str) -> Path:
    """A file whose name is hostile too, as far as a name can be."""
    name = text.replace("/", "").replace("\x00", "")[:40]
    return folder / f"{name}.json"


def _document(case: Screen) -> dict[str, object]:
    text = case.text
    step: dict[str, object] = {"name": "misbehave", "description": text}
    match case.step:
        case "gate":
            step["approval"] = {"prompt": text, "roles": [text[:100]], "deadline": "1h"}
        case "wait":
            step["wait"] = {"event": text[:100], "deadline": "1h"}
        case "command":
            step |= {"command": ["sh", "-c", 'printf %s "$0" >&2; exit 3', text], "timeout": "5s"}
        case handler:
            step |= {"uses": f"terminal.{handler}", "timeout": "5s", "rules": [{"check": "true", "message": text}]}
    if "wait" not in step and "approval" not in step:
        step["retry"] = {"max_attempts": 1}
    return {
        "workflow": "hostile",
        "timeout": "1h",
        "description": text,
        "labels": {text[:20]: text},
        "input": {"value": {"description": text}},
        "output": {text: text},
        "steps": [step],
    }
