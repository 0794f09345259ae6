"""Limits in logs: a claim has a place under each limit of its step, and no key ever gave out more than its rule allows.

A log of one run shows which places its claims had (`KeyGrants`). What other runs held is not in it: `replay` takes the
grants of many runs and follows each key by the numbers of its grants, not by clocks. Each grant tells what was held
before it and which grants had ended since the one before; the replay counts both again, and asks whether what is said
to have ended has ended in the log of its run. `reenact` and `details` call it; simulations and tests call `replay`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from stepkeep.conformance.contract import PlannedRule
from stepkeep.conformance.line import Line
from stepkeep.conformance.report import Code
from stepkeep.conformance.schema import any_text, text

Claimed = tuple[str, int, int]
"""A claim: its run, the number of its step, and its fence."""

_RATE = frozenset({"rate", "period", "burst", "units", "tat"})
_KNOWN = frozenset({"name", "key", "seq", "revision", "weight", "held", "freed", "most"}) | _RATE


class Grant(NamedTuple):
    """A place that a claim had, with the time of its entry (microseconds) and what the entry tells."""

    claim: Claimed
    at: int
    told: Mapping[str, Any]


def is_placed(value: Any) -> bool:
    """Whether this is a list of places, each under a key that had room."""
    return isinstance(value, list) and bool(value) and all(map(_is_place, value))


def _is_place(told: Any) -> bool:
    if not isinstance(told, dict) or told.keys() - _KNOWN or not (text(told.get("name")) and any_text(told.get("key"))):
        return False
    charged = told.keys() & _RATE
    numbers = [told.get("seq"), told.get("revision"), told.get("weight"), told.get("held")]
    numbers += [told[name] for name in ("most", *sorted(charged)) if name in told] + list(told.get("freed", []))
    if charged not in (set(), _RATE) or not all(type(one) is int and one >= 0 for one in numbers):
        return False
    return bool(told["weight"] > 0 and ("most" not in told or told["held"] + told["weight"] <= told["most"]))


class RunGrants:
    """The places of the claims of one run."""

    def __init__(self) -> None:
        self._charged: dict[tuple[int, str], int] = {}

    def follow(self, place: PlannedRule, line: Line, asked: Mapping[str, Any]) -> Iterator[tuple[Code, str]]:
        """Every problem of this hop."""
        if line.trigger != "claimed":
            return
        limits = place.rule.limits if place.rule is not None and place.phase == "main" else ()
        found = asked.get("limits")
        told: list[Any] = [] if found is None or not is_placed(found) else found
        if [one["name"] for one in told] != [limit.name for limit in limits]:
            wanted = ", ".join(limit.name for limit in limits) or "none"
            yield Code.CLAIM, f"it is claimed with other places than its definition names limits ({wanted})"
            return
        for limit, one in zip(limits, told, strict=True):
            weight = min(limit.weight, one.get("most", limit.weight))
            if one["weight"] != weight:
                yield Code.CLAIM, f"it weighs {one['weight']} under {limit.name}, and its definition says {weight}"
            if (limit.per is None) != (one["key"] == ""):
                yield Code.CLAIM, f"it has a place under {limit.name} with the key {one['key']!r}"
            if "units" in one and line.attempt is not None:
                if self._charged.get((line.no, limit.name)) == line.attempt:
                    yield Code.CLAIM, f"the rate of {limit.name} was charged twice for attempt {line.attempt}"
                self._charged[line.no, limit.name] = line.attempt


def replay(grants: Iterable[Grant], ended: Collection[Claimed]) -> Iterator[str]:
    """Everything that is wrong with the grants of all keys. `ended` are the claims that end in the logs."""
    keys: dict[tuple[str, str], list[Grant]] = {}
    for one in grants:
        keys.setdefault((one.told["name"], one.told["key"]), []).append(one)
    for (name, key), mine in sorted(keys.items()):
        said = f"limit {name}" + (f" for {key}" if key else "")
        for problem in _replay_key(sorted(mine, key=lambda one: int(one.told["seq"])), ended):
            yield f"{said}: {problem}"


def _replay_key(grants: list[Grant], ended: Collection[Claimed]) -> Iterator[str]:
    live: dict[int, Grant] = {}
    last, tat = None, 0
    for one in grants:
        told, number = one.told, one.told["seq"]
        if number == last:
            yield f"grant {number} was given twice"
        elif last is not None and number != last + 1:
            # A key that was not used for long is forgotten, and begins again with another number.
            if told["held"] or told.get("freed") or any(held.claim not in ended for held in live.values()):
                yield f"grant {number} does not follow grant {last}"
            live, tat = {}, 0
        for gone in told.get("freed", ()):
            held = live.pop(gone, None)
            if held is None:
                yield f"grant {gone} ended twice, or never began"
            elif held.claim not in ended:
                yield f"grant {gone} is said to have ended, and run {held.claim[0]} has it still"
        weight = sum(held.told["weight"] for held in live.values())
        if weight != told["held"]:
            yield f"grant {number} counted {told['held']}, and {weight} were held"
        most = told.get("most")
        if most is not None and weight + told["weight"] > most:
            yield f"{weight + told['weight']} are held with grant {number}, and {most} may be"
        if "tat" in told:
            yield from _charged(one, tat)
            tat = told["tat"]
        live[number], last = one, number


def _charged(one: Grant, tat: int) -> Iterator[str]:
    told = one.told
    interval = -(-told["period"] * told["units"] // told["rate"])
    room = -(-told["period"] * max(told["burst"], told["units"]) // told["rate"])
    if told["tat"] != max(tat, one.at) + interval:
        yield f"grant {told['seq']} charged its rate wrongly"
    if told["tat"] - one.at > room:
        yield f"grant {told['seq']} came {told['tat'] - one.at - room} microseconds too early"
