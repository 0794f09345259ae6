"""The people of a waiting step as a value, and in words. Pure; `cases.py` makes it, `explain` and views tell it."""

from __future__ import annotations

import msgspec

from stepkeep.operations.answers import Answer

NAMED = 5
"""People who are named in a sentence; the others are counted."""


class Barred(Answer, kw_only=True):
    """A person who may not act on a step: the rule, and the reason in a few words."""

    person: str
    rule: str
    reason: str


class People(Answer, kw_only=True):
    """The people of a waiting step: whom it takes, in words, how many decisions are missing, who may act, who may not.
    `more` counts those that were not looked at."""

    of: str
    needs: int
    may: list[str]
    may_not: list[Barred]
    more: int


class StepPeople(msgspec.Struct, frozen=True, kw_only=True):
    """The people of a waiting step. `of` says in words which people it takes, and is empty if it takes anyone.

    `needs` is the number of decisions that are missing. `may` and `may_not` have the people that are known: those with
    the roles and groups, the named approvers, and everyone with a duty in the run. `more` counts those not looked at.
    `reader` has the words that let the reader of the explanation act, None if none do; `reader_asked`: they asked for
    the run.
    """

    of: str = ""
    needs: int = 1
    may: tuple[str, ...] = ()
    may_not: tuple[Barred, ...] = ()
    more: int = 0
    reader: tuple[str, ...] | None = ()
    reader_asked: bool = False

    @property
    def people(self) -> People:
        """The same for those who read an explanation."""
        return People(of=self.of, needs=self.needs, may=[*self.may], may_not=[*self.may_not], more=self.more)

    @property
    def takes_nobody(self) -> bool:
        """Whether no registered person may act, although the step names people."""
        return bool(self.of) and not self.may and not self.more


def in_words(asked: StepPeople | None, act: str) -> str:
    """Sentences about the people who may act, and about those who may not.

    >>> barred = Barred(person="ann", rule="maker_checker", reason="ann asked for the run")
    >>> in_words(StepPeople(of="role finance", may=("bea", "cyd"), may_not=(barred,)), "decide it")
    ' bea and cyd may decide it. ann may not: ann asked for the run.'
    >>> in_words(StepPeople(may_not=(barred,)), "complete it")
    ' Anyone else than ann may complete it. ann may not: ann asked for the run.'
    """
    if asked is None or not (asked.of or asked.may or asked.may_not):
        return ""
    said = ""
    if asked.may:
        said += f" {_listed(asked.may, asked.more)} may {act}."
    elif asked.of:
        said += f" No registered person may {act} now."
    elif asked.may_not:
        said += f" Anyone else than {_listed([one.person for one in asked.may_not])} may {act}."
    for one in asked.may_not[:NAMED]:
        said += f" {one.person} may not: {one.reason}."
    left = len(asked.may_not) - NAMED
    return said + (f" {left:,} more may not." if left > 0 else "")


def _listed(names: tuple[str, ...] | list[str], more: int = 0) -> str:
    left = len(names) - NAMED + more if len(names) > NAMED else more
    shown = [*names[:NAMED], *([f"{left:,} more"] if left > 0 else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
