"""What the audience sees: headings, sentences, moving progress and pictures; or nothing, with `--json`."""

from __future__ import annotations

import shlex
from typing import Any

from stepkeep.cli.commands.show import print_report
from stepkeep.cli.printer import console
from stepkeep.cli.render.consoles import Text
from stepkeep.cli.screens import Screen, screen_for
from stepkeep.cli.settings import Settings


class Stage:
    """Where the acts are shown."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._console = None if settings.json else console()

    def heading(self, text: str) -> None:
        if self._console is not None:
            self._console.print()
            self._console.rule(f" {text} ", align="left", characters="─")

    def say(self, text: str, style: str = "") -> None:
        if self._console is not None:
            self._console.print(Text(text, style), soft_wrap=True)

    def type(self, *words: str) -> None:
        """A command, as the audience could type it."""
        self.say(f"$ {self.settings.command(*words)}", "bold")

    def shell(self, *words: str) -> None:
        """A command of the shell's own."""
        self.say(f"$ {shlex.join(words)}", "bold")

    def picture(self, view: dict[str, Any]) -> None:
        """The same picture that `stepkeep show` draws."""
        if self._console is not None:
            self.say("")
            self.type("show", view["run"]["id"])
            print_report(view, self.settings)

    def screen(self) -> Screen:
        return screen_for(json=self.settings.json)
