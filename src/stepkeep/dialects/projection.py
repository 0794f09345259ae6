"""Projects a run into a dialect: a fold over canonical hops that remembers the shown states.

Hops without a change in the dialect are stutters and vanish. Only main steps are shown; undo steps and checks are
internal to the engine. Pure: the log, the views and the judge all use it.
"""

from __future__ import annotations

from typing import NamedTuple

from stepkeep.dialects.machine import MachineView


class Seen(NamedTuple):
    """A canonical hop: `kind` is run, step or worker, `name` is the step's (or entity's) name."""

    kind: str
    name: str
    source: str | None
    trigger: str
    target: str
    phase: str = "main"


class Shown(NamedTuple):
    """An arrow in the dialect. `extension` marks an arrow or a state that the seed does not have."""

    kind: str
    noun: str
    name: str
    source: str | None
    target: str
    extension: bool


class RunView:
    """How a dialect shows the run itself. This one follows the run's own state; a dialect may use steps too."""

    def __init__(self, view: MachineView) -> None:
        self.view = view
        self.shown: str | None = None
        self.state: str | None = None

    def feed(self, seen: Seen) -> str | None:
        """The shown state of the run after this hop, of the run or of any step."""
        if seen.kind == "run":
            self.state = seen.target
            return self.view.next_shown(self.shown, seen.target, seen.trigger)
        return self.shown


class Projection:
    """One run (or one worker) in one dialect."""

    def __init__(self, run: RunView, step: MachineView, worker: MachineView | None = None) -> None:
        self._run, self._step, self._worker = run, step, worker
        self._steps: dict[str, str] = {}
        self._workers: dict[str, str] = {}

    def feed(self, seen: Seen) -> list[Shown]:
        """The arrows that this hop shows: none, the step's, the run's, or both (the step's first)."""
        shown = []
        if seen.kind == "step" and seen.phase == "main":
            shown += self._follow(self._step, self._steps, seen)
        elif seen.kind == "worker" and self._worker is not None:
            shown += self._follow(self._worker, self._workers, seen)
        before, after = self._run.shown, self._run.feed(seen)
        if after is not None and after != before:
            self._run.shown = after
            name = seen.name if seen.kind == "run" else ""
            shown.append(arrow("run", self._run.view, name, before, after))
        return shown

    def _follow(self, view: MachineView, memory: dict[str, str], seen: Seen) -> list[Shown]:
        before = memory.get(seen.name)
        after = view.next_shown(before, seen.target, seen.trigger)
        if after is None or (after == before and not view.repeated(before, seen.trigger)):
            return []
        memory[seen.name] = after
        return [arrow(seen.kind, view, seen.name, before, after)]


def arrow(kind: str, view: MachineView, name: str, before: str | None, after: str) -> Shown:
    return Shown(kind, view.noun, name, before, after, not view.legal(before, after))
