"""Projects a run into a dialect: a fold over canonical hops that remembers the shown states.

Hops without a change in the dialect are stutters and vanish. Undo steps are shown where the seed has compensation;
checks are internal to the engine. Pure: the log, the views and the judge all use it.
"""

from __future__ import annotations

from typing import NamedTuple

from stepkeep.dialects.grounds import Grounds, Seen
from stepkeep.dialects.machine import Extension, MachineView

__all__ = ["Projection", "Seen", "ShownArrow", "ShownRunView"]


class ShownArrow(NamedTuple):
    """An arrow in the dialect. `kind` is run, step, undo or worker.

    `word` is its trigger there; `extension` marks a word that is not the seed's. `ground` is why it is shown: the
    canonical trigger, unless that has several grounds.
    """

    kind: str
    noun: str
    name: str
    source: str | None
    target: str
    extension: bool
    word: str
    ground: str


class ShownRunView:
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

    def __init__(
        self, run: ShownRunView, step: MachineView, worker: MachineView | None = None, undo: MachineView | None = None
    ) -> None:
        self._run, self._views = run, {"main": step, "undo": undo, "worker": worker}
        self._grounds = Grounds()
        self._shown: dict[str, str] = {}
        self._late: list[ShownArrow] = []
        self._words: dict[tuple[str, str | None, str, str, str], tuple[bool, str]] = {}
        """Whether an arrow is an extension, and its word: by kind, states, trigger and ground."""

    def feed(self, seen: Seen) -> list[ShownArrow]:
        """The arrows that this hop shows: none, the step's, the run's, or both (the step's first).

        A run's arrow that follows that of a step is shown with the next hop, which is the step's.
        """
        shown = []
        ground, run_ground = self._grounds.feed(seen)
        view = None if seen.kind == "run" else self._views.get(seen.phase if seen.kind == "step" else "worker")
        if view is not None:
            shown += self._follow(view, seen, ground)
        shown += self._late
        self._late = []
        before, after = self._run.shown, self._run.feed(seen)
        if after is not None and after != before:
            self._run.shown = after
            name = seen.name if seen.kind == "run" else ""
            told = self._arrow("run", self._run.view, name, before, after, seen.trigger, run_ground)
            (self._late if run_ground in self._run.view.follows else shown).append(told)
        return shown

    def _follow(self, view: MachineView, seen: Seen, ground: str) -> list[ShownArrow]:
        before = self._shown.get(seen.name)
        after = view.next_shown(before, seen.target, seen.trigger)
        if after is None or (after == before and not view.repeated(before, seen.trigger)):
            return []
        self._shown[seen.name] = after
        kind = "undo" if seen.phase == "undo" else seen.kind
        return [self._arrow(kind, view, seen.name, before, after, seen.trigger, ground)]

    def _arrow(
        self, kind: str, view: MachineView, name: str, before: str | None, after: str, because: str, ground: str
    ) -> ShownArrow:
        key = (kind, before, after, because, ground)
        known = self._words.get(key)
        if known is None:
            listed = view.word(before, after, because, ground)
            # Nothing listed: an extension by its canonical trigger, which the judge refuses.
            is_extension = listed is None or isinstance(listed, Extension)
            known = self._words[key] = is_extension, (listed.trigger if listed else "") or because
        return ShownArrow(kind, view.noun, name, before, after, *known, ground)
