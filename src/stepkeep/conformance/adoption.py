"""Checks what a run adopted from an earlier one: the reference in its creation, each adopted step, and the original.

A run that continues another one says in the detail of its creation which steps it takes, from which run, under which
fence and with which output. It reads logs alone. `reenact.py` follows one run by it; `check_originals` compares with
the journals of the runs that executed the steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from stepkeep.conformance.contract import Contract, StepRule, is_element_name, read_contract
from stepkeep.conformance.encoding import compact
from stepkeep.conformance.growth import calls_in, rule_of
from stepkeep.conformance.line import Line
from stepkeep.conformance.people import own_decision
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.schema import FieldShape, digest, is_persons, misfits, text, whole
from stepkeep.conformance.steps import FollowedStep

Problem = tuple[Code, str]

ADOPTING = frozenset({"adopted", "adopted_skipped"})
"""Triggers by which a run takes the result of an earlier one."""

ROLLBACK = "rollback"
"""The way of a run that only undoes what a finished child did."""

WAYS = frozenset({"retry", "rerun", "fork", "migrate", ROLLBACK})
OWNING = ("retry", "migrate", ROLLBACK)
"""Ways in which the new run undoes what it adopts."""


def _flag(value: Any) -> bool:
    return type(value) is bool


def _names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(text(name) for name in value)


def _moments(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(text(name) and whole(at) for name, at in value.items())


def _way(value: Any) -> bool:
    return isinstance(value, str) and value in WAYS


def _call(value: Any) -> bool:
    return isinstance(value, dict) and text(value.get("name")) and isinstance(value.get("step"), dict)


def _references(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) and not list(misfits(one, ITEM, "")) for one in value)


def _flows(value: Any) -> bool:
    return isinstance(value, dict) and all(
        text(name) and isinstance(one, dict) and not list(misfits(one, BEGUN, "")) for name, one in value.items()
    )


def _keys(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) and not list(misfits(one, KEY, "")) for one in value)


def _digests(value: Any) -> bool:
    return isinstance(value, dict) and all(text(name) and digest(one) for name, one in value.items())


KEY = FieldShape({"place": whole, "kind": text, "name": text, "arguments": text, "run": text}, {})
BEGUN = FieldShape({}, {"keys": _keys, "checkpoints": _digests})
ITEM = FieldShape(
    {"step": text, "run": text, "fence": whole, "undo": _flag},
    {"its_step": text, "digest": digest, "executors": _names, "remains": text, "call": _call, "persons": is_persons},
)
WHOLE = FieldShape(
    {"run": text, "as": _way, "adopted": _references},
    {"from": text, "began_at": whole, "deadlines": _moments, "flows": _flows},
)


def is_continuation(value: Any) -> bool:
    """Whether this is what the creation of a run may say about the run that it continues."""
    return isinstance(value, dict) and not list(misfits(value, WHOLE, ""))


class Adoption:
    """What one run said that it adopts, and what it has adopted so far."""

    def __init__(self, told: Any) -> None:
        known: Mapping[str, Any] = told if is_continuation(told) else {"adopted": [], "as": ""}
        self._told: list[dict[str, Any]] = known["adopted"]
        self._by_name = {item["step"]: item for item in self._told}
        self._owns, self.is_rollback = known["as"] in OWNING, known["as"] == ROLLBACK
        self._taken = 0
        self._flows: Mapping[str, Any] = known.get("flows", {})
        is_migrated = known["as"] == "migrate"
        self.began_at: int | None = known.get("began_at") if is_migrated else None
        """When the work of a migrated run began: its timeout counts from there."""
        self.deadlines: Mapping[str, int] = known.get("deadlines", {}) if is_migrated else {}
        """When waits and gates end that were open in the run before it."""

    def take(self, line: Line, *, has_elements: bool) -> Iterator[Problem]:
        """Check the line of an adopted step against what the creation of the run says."""
        item = self._by_name.get(line.step or "")
        if item is None:
            yield Code.ADOPTION, "it is adopted, but the creation of the run does not name it"
            return
        place, self._taken = self._taken, self._taken + 1
        if place >= len(self._told) or self._told[place]["step"] != line.step:
            yield Code.ADOPTION, "it is adopted out of the order that the creation of the run gives"
        if item.get("digest") != line.digest:
            yield Code.ADOPTION, f"metadata.digest is {quoted(line.digest)}, expected {quoted(item.get('digest'))}"
        if item["undo"] and not self._owns:
            yield Code.ADOPTION, "the run owns its undo, which only a retry, a migration or a rollback takes over"
        of_skipped = self.is_rollback and line.trigger == "adopted_skipped" and not item["undo"]
        of_elements = has_elements and line.trigger == "adopted" and self._owns and item["undo"] is not self.is_rollback
        of_call = "call" in item and line.trigger == "adopted_skipped" and self._owns and not item["undo"]
        if "remains" in item and not (of_skipped or of_elements or of_call):
            may = "a rollback of a step that was skipped, and a run that is responsible of elements and failed calls"
            yield Code.ADOPTION, f"its effect is said to remain, which only these say: {may}"
        if item["undo"] and line.trigger != "adopted" and not self.is_rollback:
            yield Code.ADOPTION, "the run owns the undo of a step that was skipped"

    def persons(self) -> Iterator[tuple[str, Any]]:
        """Each adopted step with the persons of it and everything below it, as the creation names them."""
        yield from ((item["step"], item.get("persons")) for item in self._told)

    def own_decisions(self, actor: str) -> Iterator[Problem]:
        """The person who asks for the run takes over no decision of their own."""
        for name, persons in self.persons() if not self.is_rollback else ():
            if own_decision(actor, persons or {}):
                said = f"step {quoted(name)} is adopted with a decision of {quoted(actor)}, who asks for the run"
                yield Code.ADOPTION, said

    def call_of(self, name: str | None) -> Any:
        """What the creation says of an adopted call of a flow, or of an added step; None for any other step."""
        return self._by_name.get(name or "", {}).get("call")

    def kept_key(self, flow: str, place: int | None, call: Mapping[str, Any]) -> str | None:
        """The run whose key a call keeps: it is a call of that run at this place, with equal arguments."""
        made = {"place": place, **{name: call.get(name) for name in ("kind", "name", "arguments")}}
        keys = self._flows.get(flow, {}).get("keys", ())
        return next((one["run"] for one in keys if made.items() <= one.items()), None)

    def checkpoints(self, flow: object) -> frozenset[str]:
        """The names of the checkpoints that a flow has from the earlier run."""
        return frozenset(self._flows.get(str(flow), {}).get("checkpoints", ()))

    def unsaid(self) -> list[str]:
        """Steps that the creation names and the run did not adopt; each is told once."""
        left = [item["step"] for item in self._told[self._taken :]]
        self._taken = len(self._told)
        return left

    def is_anothers(self, step: FollowedStep) -> bool:
        """Whether this step was adopted, and its effect is not for this run to undo."""
        item = self._by_name.get(step.name)
        return step.ended_as in ADOPTING and item is not None and not item["undo"]

    def is_owned(self, step: FollowedStep) -> bool:
        """Whether this run undoes a step that it adopted."""
        item = self._by_name.get(step.name)
        return step.ended_as in ADOPTING and item is not None and item["undo"]

    def remains(self, step: FollowedStep) -> bool:
        """Whether the effect of an adopted step is said to remain."""
        item = self._by_name.get(step.name)
        return step.ended_as in ADOPTING and item is not None and "remains" in item


def continuation_in(lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """What a canonical log says about the run that its run continues; None if it continues none."""
    for line in lines:
        detail = line["metadata"].get("detail")
        told: Any = detail.get("continues") if isinstance(detail, dict) else None
        if is_continuation(told):
            return cast(Mapping[str, Any], told)
    return None


def check_calls(
    told: Mapping[str, Any], originals: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[tuple[str, str]]:
    """What is wrong with the calls of flows that a run adopted, and with the keys that its new ones keep: the step, and
    why. A flow that goes on is given a prefix of its calls, in the order of their ends."""
    earlier = originals.get(told["run"], ())
    if told["as"] not in ("rollback", "migrate") and earlier:
        yield from _beyond_the_prefix(told, earlier)
    for flow, begun in told.get("flows", {}).items():
        for key in begun.get("keys", ()):
            lines, step = originals.get(key["run"]), f"{flow}[{key['place']}]"
            if lines is None:
                continue
            if any(_begins_undo(line, step) for line in (*lines, *earlier)):
                yield step, "it keeps its key, and its undo was begun"
            details = [found for line in lines if isinstance(found := line["metadata"].get("detail"), dict)]
            made = {name: key[name] for name in ("kind", "name", "arguments")}
            if not any(made.items() <= call.items() for detail in details for call in calls_in(flow, detail)):
                yield step, f"it keeps the key of run {key['run']}, which did not make this call"


def _beyond_the_prefix(told: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    taken = {item.get("its_step", item["step"]) for item in told["adopted"] if "call" in item}
    missing: dict[str, str] = {}
    seen: set[str] = set()
    for line in lines:
        name = line["metadata"].get("step") or ""
        owner, is_call = name.rsplit("[", 1)[0], is_element_name(name) and not name.startswith("undo:")
        if not is_call or name in seen or line["to_state"] not in ("succeeded", "skipped", "failed", "cancelled"):
            continue
        seen.add(name)
        if name not in taken:
            missing.setdefault(owner, name)
        elif owner in missing:
            yield name, f"it is adopted, and {quoted(missing[owner])}, which ended before it, is not"


def _begins_undo(line: Mapping[str, Any], name: str) -> bool:
    began = line["trigger"] in ("claimed", "children_started")
    return bool(began and line["metadata"].get("step") == f"undo:{name}")


def check_originals(
    references: Sequence[Mapping[str, Any]], originals: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[tuple[str, str | None]]:
    """Each reference with what is wrong with it: None if the original journal has the step as it says.

    `originals` has the canonical logs of the runs that executed the steps; a step of another run is left out.
    """
    for item in references:
        if item["run"] in originals:
            yield item["step"], _difference(item, originals[item["run"]])


def _difference(item: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> str | None:
    name = item.get("its_step", item["step"])
    moves = [line for line in lines if line["metadata"].get("step") == name]
    ends = [line for line in moves if line["to_state"] in ("succeeded", "skipped")]
    if not ends and "remains" in item:
        ends = [line for line in moves if line["to_state"] in ("failed", "cancelled")]
    if not ends:
        return f"run {item['run']} never finished step {quoted(name)}"
    fence, output = _ended_with(lines, name)
    if fence != item["fence"]:
        return f"its fence is {item['fence']}, and run {item['run']} finished it under {fence}"
    is_skipped = ends[-1]["to_state"] != "succeeded" and "digest" not in item
    if output != item.get("digest") and not is_skipped:
        return f"its digest is {quoted(item.get('digest'))}, and run {item['run']} has {quoted(output)}"
    if item["undo"] and any(_undoes(line, name) for line in lines):
        return f"run {item['run']} undid it"
    if any(_undoes_element(line, name) for line in lines):
        return f"run {item['run']} undid elements of it"
    done = list(_done_below(lines, name)) if item["undo"] else []
    if any(rule.undo is not None for rule in done):
        return f"its elements are to be undone, which only run {item['run']} can do"
    if "remains" not in item and any(rule.effect != "read" for rule in done):
        return "its elements had effects, and it does not say that they remain"
    return None


def _done_below(lines: Sequence[Mapping[str, Any]], owner: str) -> Iterator[StepRule]:
    """The rules of the elements, calls and added steps of a step that succeeded."""
    told = lines[0]["metadata"].get("definition") if lines else None
    contract = read_contract(compact(told).encode()) if isinstance(told, dict) else ""
    if not isinstance(contract, Contract):
        return
    details = [found for line in lines if isinstance(found := line["metadata"].get("detail"), dict)]
    taken = (continuation_in(lines) or {"adopted": ()})["adopted"]
    calls = {item["step"]: rule_of(item["call"]) for item in taken if "call" in item}
    names = (name for index in itertools.count() if (name := f"{owner}[{index}]") not in calls)
    new = [rule_of(call) for detail in details for call in calls_in(owner, detail)]
    calls |= dict(zip([next(names) for _ in new], new, strict=True))
    anothers = {item["step"] for item in taken if not item["undo"]}
    for line in lines:
        if line["trigger"] in ADOPTING and line["metadata"].get("step") in anothers:
            continue
        no = contract.places.number(line["metadata"].get("step") or "") if line["to_state"] == "succeeded" else None
        place = None if no is None else contract.places.get(no)
        if place is None or place.owner is None or contract.places[place.owner].name != owner or place.phase != "main":
            continue
        rule = place.rule or calls.get(place.name)
        if rule is not None:
            yield rule


def _ended_with(lines: Sequence[Mapping[str, Any]], name: str) -> tuple[int, str | None]:
    """The fence and the digest under which a step ended; of several digests the last is that of its output."""
    fence, output = 0, None
    for line in lines:
        said = line["metadata"]
        if said.get("step") != name or line["trigger"] in ("gate_opened", "held"):
            continue
        fence = said.get("fence", fence)
        output = said.get("digest", output)
    return fence, output


def _undoes(line: Mapping[str, Any], name: str) -> bool:
    return bool(line["metadata"].get("step") == f"undo:{name}" and line["to_state"] == "succeeded")


def _undoes_element(line: Mapping[str, Any], owner: str) -> bool:
    name = line["metadata"].get("step") or ""
    return name.startswith(f"undo:{owner}[") and line["to_state"] == "succeeded"
