"""Bounds the work of a JSON Schema before it runs: how many steps a check of a value takes at most.

References and combinations (`allOf`, `anyOf` …) multiply: 2 kB of schema can mean a billion steps, and the schema
library holds the interpreter lock meanwhile. A step is about 10 ns. The bound may be higher than the work, never lower
by more than a small factor. It validates nothing. `json_schema` calls it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

import msgspec

from stepkeep.definition.expressions.limits import Atoms, pattern_units

MAX_RULES: Final = 10_000
"""Steps for one place of a value, whatever the value is: more is refused when a schema is published."""
MAX_STEPS: Final = 4_000_000
"""Steps for one value: about 40 ms."""
MAX_VISITS: Final = 100_000
"""Places of a schema and of a value at which the bound itself looks."""
PUBLISHED_DEPTH: Final = 8
"""The levels of values for which `MAX_RULES` holds. Schemas of trees may need more for deeper ones, at use."""
DEEPEST: Final = 64

_IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_EACH_CHILD: Final = (
    *("additionalProperties", "items", "additionalItems", "contains"),
    *("unevaluatedProperties", "unevaluatedItems", "propertyNames"),
)
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_CONTAINS, _UNIQUE, _NUMBER, _FAR_NUMBER, _UNEVALUATED = 20, 12, 150, 2_000, 3
"""Steps of what takes longer than others, as measured: each item, each number, each level of `unevaluated…`."""
_PATTERN, _COMPILED = 2_000, Atoms(3_500, 40, 6)
"""Steps to compile a pattern, and tens of steps for its parts, as measured."""
_DETERMINISTIC: Final = 12
"""States of a pattern up to which its automaton always fits in the cache of the pattern library."""
_token = re.compile(r"\\[pPx]\{[^}]*\}|\\.|\[(?:\\.|[^\]\\])*\]|\{(\d+)(?:,(\d*))?\}|.", re.DOTALL).finditer


class TooCostly(ValueError):
    """A schema whose checks have no bound within the limits; the text says why."""


class SubschemaCost:
    """What applies to one place of a value: a schema with all that it refers to and combines at the same place."""

    __slots__ = ("each", "each_child", "keys", "named", "numbers", "own", "text", "unique")

    def __init__(self) -> None:
        self.own = self.text = self.numbers = self.unique = self.each_child = self.keys = 0
        self.named: dict[str | int, Counter[int]] = {}
        """What applies to a child by its name or position."""
        self.each: Counter[int] = Counter()
        """What applies to every child, or to every name."""


class CostBound:
    """The bound of one schema.

    >>> CostBound({"items": {"type": "integer"}}).steps([1, 2, 3])
    4
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._root, self._left = schema, MAX_VISITS // 2
        self._nodes: dict[int, Any] = {}
        self._bases: dict[int, str] = {}
        self._named: dict[str, list[Any]] = {}
        self._places: dict[int, SubschemaCost] = {}
        self._depths: dict[tuple[int, int], tuple[int, int]] = {}
        self._besides: dict[int, list[Any]] = {}
        self._index()
        depths = [*self._levels(0, PUBLISHED_DEPTH)]
        if (rules := max(own for own, _ in depths)) > MAX_RULES:
            raise TooCostly(f"one place of a value is checked by {rules:,} rules; at most {MAX_RULES:,} are allowed")
        try:
            depths += self._levels(PUBLISHED_DEPTH + 1, DEEPEST)
            self._most = max(own for own, _ in depths), max(text for _, text in depths)
        except TooCostly:
            self._most = MAX_STEPS + 1, 0  # the bound looks at each value
        self._depths.clear()

    def _levels(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The most steps at each of these depths, as far down as the schema says anything."""
        for depth in range(first, last + 1):
            yield (found := self._at(id(self._root), depth))
            if found == (0, 0):
                return

    def most(self, size: int) -> int:
        """The steps of a check of any value of so many bytes."""
        own, text = self._most
        return own * (1 + size // 2) + text * size

    def steps(self, value: Any, most: int = MAX_STEPS) -> int:
        """The steps of a check of this value; any number above `most` if they are more."""
        try:
            encoded = msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            return 0  # the library refuses what is no JSON
        places = 1 + encoded.count(b",") + encoded.count(b"[") + encoded.count(b"{")
        own, text = self._most
        quick = own * places + text * len(encoded)
        return quick if quick <= most else self._walk(value, most)

    def _walk(self, value: Any, most: int) -> int:
        """The steps for just this value, place by place."""
        steps, visits, limit = 0, 0, min(most, MAX_VISITS)
        todo: list[tuple[Any, Mapping[int, int], int]] = [(value, {id(self._root): 1}, 0)]
        while todo:
            at, schemas, inherited = todo.pop()
            steps += inherited
            children: dict[str | int, Counter[int]] = {}
            is_object, is_list = isinstance(at, dict), isinstance(at, list | tuple)
            for schema, count in schemas.items():
                place = self._cost_of(schema)
                visits += 1
                steps += count * place.own
                if isinstance(at, str):
                    steps += count * place.text * len(at)
                elif isinstance(at, int | float):
                    steps += count * place.numbers * (_NUMBER if 1e-9 < abs(at) < 1e18 else _FAR_NUMBER)
                elif is_object or is_list:
                    inherited += count * place.unique
                    steps += count * (place.each_child * len(at) + place.keys * sum(map(len, at) if is_object else ()))
                    for name in at if is_object else range(len(at)) if place.each else place.named:
                        for found in (place.each, place.named.get(name)):
                            if found:
                                mine = children.setdefault(name, Counter())
                                for one, times in found.items():
                                    mine[one] += count * times
                                visits += len(found)
                        if visits > limit:
                            return most + 1
                if steps > most or visits > limit:
                    return most + 1
            if is_object or is_list:
                if inherited:
                    children = {name: children.get(name, Counter()) for name in (at if is_object else range(len(at)))}
                for name, below in children.items():
                    if is_object and name in at:
                        todo += [(at[name], below, inherited), (name, below, 0)]
                    elif is_list and isinstance(name, int) and name < len(at):
                        todo.append((at[name], below, inherited))
        return steps

    def _at(self, schema: int, depth: int) -> tuple[int, int]:
        """The most steps for one place this deep in a value, and for one byte of it."""
        key = (schema, depth)
        if key not in self._depths:
            place = self._cost_of(schema)
            if depth == 0:
                numbers = place.numbers * _FAR_NUMBER
                self._depths[key] = place.own + numbers, place.text
                return self._depths[key]
            self._spend(len(place.each) + len(place.named))
            own, text = self._sum(place.each, depth)
            named = [self._sum(one, depth) for one in place.named.values()]
            own += max((one for one, _ in named), default=0) + place.unique + (place.each_child if depth == 1 else 0)
            text += max((one for _, one in named), default=0) + (place.keys if depth == 1 else 0)
            self._depths[key] = own, text
        return self._depths[key]

    def _sum(self, schemas: Counter[int], depth: int) -> tuple[int, int]:
        found = [(count, *self._at(schema, depth - 1)) for schema, count in schemas.items()]
        return sum(count * own for count, own, _ in found), sum(count * text for count, _, text in found)

    def _cost_of(self, schema: int) -> SubschemaCost:
        """What applies where this schema does."""
        if schema not in self._places:
            place = self._places[schema] = SubschemaCost()
            for one, (count, unevaluated) in self._closure(schema).items():
                node = self._nodes[one]
                if isinstance(node, dict):
                    self._add(place, node, count)
                    place.each_child += unevaluated * (1 + len(node))
        return self._places[schema]

    def _closure(self, start: int) -> dict[int, tuple[int, int]]:
        """The schemas that apply at one place, each with how often, and how often `unevaluated…` looks at it again."""
        if not self._beside(self._nodes[start]):
            self._spend(1)
            return {start: (1, 0)}
        order: list[int] = []
        state: dict[int, bool] = {}
        todo = [(start, False)]
        while todo:
            node, is_left = todo.pop()
            if is_left:
                order.append(node)
                state[node] = True
            elif node not in state:
                self._spend(1)
                state[node] = False
                todo.append((node, True))
                todo += [(id(one), False) for one in self._beside(self._nodes[node])]
            elif not state[node]:
                raise TooCostly("it refers to itself at the same place of a value, so that a check has no end")
        counts = {node: [0, 0] for node in order}
        counts[start][0] = 1
        for node in reversed(order):
            count, again = counts[node]
            if count > MAX_STEPS:
                raise TooCostly(f"one place of a value is checked by more than {MAX_STEPS:,} rules")
            schema = self._nodes[node]
            looks = isinstance(schema, dict) and any(name.startswith("unevaluated") for name in schema)
            for one in self._beside(schema):
                self._spend(1)
                found = counts[id(one)]
                found[0] += count * (_UNEVALUATED if looks else 1)
                found[1] += (again + count) * _UNEVALUATED if looks else again
        return {node: (count, again) for node, (count, again) in counts.items()}

    def _add(self, place: SubschemaCost, schema: Mapping[str, Any], count: int) -> None:
        properties, patterns = _mapping(schema, "properties"), _mapping(schema, "patternProperties")
        self._spend(len(schema) + len(properties) + len(patterns))
        place.own += count * (len(schema) + len(properties) + sum(_sizes(schema)))
        if isinstance(schema.get("pattern"), str):
            place.text += count * _states(schema["pattern"])
        place.text += count * sum(4 for name in ("format", "contentEncoding", "contentMediaType") if name in schema)
        if isinstance(step := schema.get("multipleOf"), int | float):
            place.numbers += count * (1 if abs(step) > 1e-9 else _FAR_NUMBER // _NUMBER)
        place.unique += count * _UNIQUE * (schema.get("uniqueItems") is True)
        for name, child in properties.items():
            place.named.setdefault(name, Counter())[self._known(child)] += count
        prefix = schema.get("prefixItems", schema["items"] if isinstance(schema.get("items"), list) else ())
        for number, child in enumerate(prefix if isinstance(prefix, list) else ()):
            place.named.setdefault(number, Counter())[self._known(child)] += count
        for pattern, child in patterns.items():
            place.keys += count * _states(pattern)
            place.each[self._known(child)] += count
        for name in _EACH_CHILD:
            if isinstance(child := schema.get(name), Mapping):
                place.each[self._known(child)] += count * (_CONTAINS if name == "contains" else 1)

    def _beside(self, schema: Any) -> list[Any]:
        """The schemas that apply at the same place because of this one."""
        known = self._besides.get(id(schema))
        if known is not None or not isinstance(schema, dict):
            return known or []
        found: list[Any] = []
        for name in _REFERENCES:
            if isinstance(ref := schema.get(name), str):
                found += self._referred(ref, self._bases.get(id(schema), ""))
        for name in _IN_PLACE:
            given = schema.get(name)
            if isinstance(given, list):
                found += given
            elif isinstance(given, dict):
                found += given.values() if name.startswith("depend") else [given]
        self._besides[id(schema)] = known = [one for one in found if isinstance(one, dict) and self._known(one)]
        return known

    def _referred(self, ref: str, base: str) -> list[Any]:
        address, fragment = urldefrag(urljoin(base, ref))
        if fragment and not fragment.startswith("/"):
            found = self._named.get(f"#{fragment}", [])
        else:
            found = self._named.get(address, []) if address else [self._root]
            for part in unquote(fragment).split("/")[1:]:
                found = [_below(one, part.replace("~1", "/").replace("~0", "~")) for one in found]
        if not found:
            raise TooCostly(f"it refers to {ref[:80]}, which is no part of it. Write the part as `#/$defs/NAME`")
        return found

    def _known(self, node: Any) -> int:
        self._nodes[id(node)] = node
        return id(node)

    def _index(self) -> None:
        """Note the addresses and anchors of all parts."""
        todo: list[tuple[Any, str]] = [(self._root, "")]
        self._known(self._root)
        while todo:
            node, base = todo.pop()
            if isinstance(node, dict):
                own = node.get("$id", node.get("id"))
                if isinstance(own, str):
                    address = urljoin(base, own)
                    base = base if own.startswith("#") else urldefrag(address)[0]
                    self._named.setdefault(own if own.startswith("#") else base, []).append(node)
                for name in ("$anchor", "$dynamicAnchor"):
                    if isinstance(node.get(name), str):
                        self._named.setdefault(f"#{node[name]}", []).append(node)
                self._bases[id(node)] = base
            todo += [(one, base) for one in _parts(node)]

    def _spend(self, visits: int) -> None:
        self._left -= visits
        if self._left < 0:
            raise TooCostly("its parts refer to each other too often to tell how long a check takes")


def patterns_of(schema: Any) -> Iterator[str]:
    """Every text of a schema that may be a pattern."""
    todo = [schema]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            yield from (one for one in (node.get("pattern"), *_mapping(node, "patternProperties")) if type(one) is str)
        todo += _parts(node)


def refuse_costly_patterns(schema: Any) -> None:
    """Refuse patterns that take longer to compile than a value may take to check: the library keeps the lock then."""
    if (steps := sum(_PATTERN + 10 * pattern_units(one, _COMPILED) for one in patterns_of(schema))) > MAX_STEPS:
        raise TooCostly(
            f"its patterns take {steps:,} steps to compile; at most {MAX_STEPS:,} are allowed. Say lengths with "
            "`maxLength`, not in the pattern"
        )


def _parts(node: Any) -> Iterator[Any]:
    found = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return (one for one in found if isinstance(one, dict | list))


def _mapping(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = schema.get(name)
    return found if isinstance(found, dict) else {}


def _below(node: Any, part: str) -> Any:
    if isinstance(node, dict):
        return node.get(part)
    return node[int(part)] if isinstance(node, list) and part.isdigit() and int(part) < len(node) else None


def _sizes(schema: Mapping[str, Any]) -> Iterator[int]:
    """The steps of what is compared one by one."""
    if isinstance(names := schema.get("required"), list):
        yield len(names)
    for names in _mapping(schema, "dependentRequired").values():
        yield len(names) if isinstance(names, list) else 0
    if isinstance(values := schema.get("enum"), list) and len({*map(type, values)}) > 1:
        yield len(values)
    for one in [*(values if isinstance(values, list) else ()), schema.get("const")]:
        if isinstance(one, dict | list):
            yield len(msgspec.json.encode(one))


def _states(pattern: str) -> int:
    """In how many states a pattern may be at once: the steps for each character.

    Repetitions are written out. An item is in so many states at once as there are moments at which it can begin, so
    that `^[0-9a-f]{32}$` is in one; after a loop or a choice, and without `^`, any moment may be one.

    >>> _states("^[0-9a-f]{8}-[0-9a-f]{4}$"), _states("^[a-z][a-z0-9-]{0,61}[a-z]$"), _states("[ab]*a([ab]c){50,500}$")
    (1, 3, 1002)
    """
    anywhere = 1 << 62
    begins = 1 if pattern.startswith("^") else anywhere
    states = size = item = 0
    groups: list[int] = []
    is_group = False
    for found in _token(pattern):
        sign = found[0]
        if found[1]:
            low, high = int(found[1]), anywhere if found[2] == "" else int(found[2] or found[1])
            times = max(1, low if high == anywhere else high)
            states += item * (times - 1) if is_group else min(item * times, begins) - min(item, begins)
            size += item * (times - 1)
            begins = min(anywhere, anywhere if is_group and times > 1 else begins + (high - low) * item)
        elif sign == "(":
            groups.append(size)
        elif sign == ")" and groups:
            item, is_group = size - groups.pop(), True
        elif sign == "?":
            begins = min(anywhere, begins + item)
        elif sign in "*+|":
            begins = anywhere
        elif sign not in "^$":
            size, states, item, is_group = size + 1, states + 1, 1, False
    return 1 if size <= _DETERMINISTIC else min(states, begins)
