"""What a workflow says about the archives of its runs: which endings are archived, where, and how long runs are kept.

The words and their values, in `about` of the definition: they do not change how a run executes. Front ends write them;
`operations` reads them for archives and for retention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from stepkeep.kernel.definition import Definition

if TYPE_CHECKING:
    from stepkeep.definition.native.written import ArchiveBlock

KEY: Final = "archive"
FOREVER: Final = "forever"
FOLDER: Final = ".state/archive"

Ending = Literal["succeeded", "failed", "cancelled", "rolled_back"]
ENDINGS: Final = ("succeeded", "failed", "cancelled", "rolled_back")
IN_OTHER_WORDS: Final = {"completed": "succeeded"}
"""How a workstream names an ending."""


class ArchivePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The declared policy. `keep` is microseconds after the end by ending, or `forever`."""

    on: tuple[str, ...] = ENDINGS
    to: str = FOLDER
    keep: dict[str, int | str] = {}

    def keeps(self, state: str, ended_at: int, now: int) -> bool:
        """Whether a run that has ended so must not be deleted yet."""
        kept = self.keep.get(state)
        return kept is not None and (isinstance(kept, str) or ended_at + kept > now)


def about_archive(block: ArchiveBlock | None) -> dict[str, dict[str, object]]:
    """The part of `about` that says it; nothing where nothing is written."""
    if block is None:
        return {}
    return {KEY: {"on": sorted(set(block.on)), "to": block.to, "keep": dict(sorted(block.keep.items()))}}


def policy_of(definition: Definition) -> ArchivePolicy | None:
    """What a definition says about archives."""
    said = definition.about.get(KEY)
    return None if said is None else msgspec.convert(said, ArchivePolicy)
