"""An expression stands where it is evaluated, and in prose; everywhere else it is refused, never taken as a name."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import yaml

from stepkeep.definition.native.reader import check_text
from stepkeep.definition.native.written import StepBlock, WorkflowBlock

DEFINITION = """
workflow: full
description: d
input: {x: {description: d}}
labels: {a: b}
duties: [{distinct: [gate, gate2]}]
policy: [{name: p, steps: [a], when: "true", then: hold, reason: r, approval: {prompt: p, roles: [r]}}]
budget: {usd: 1, on_exceeded: hold, approval: {prompt: p, roles: [r]}}
archive: {to: folder}
triggers:
  - {name: t, schedule: "0 0 * * *", zone: UTC, with: {x: 1}}
  - {name: e, event: ev, condition: "true", with: {k: v}}
  - {name: n, ended: other}
hooks:
  - {name: h, "on": run.failed, command: {argv: [a, b], cwd: /c}}
  - {name: h2, "on": run.failed, message: {key: k, name: n}}
  - {name: h3, "on": run.failed, webhook: {url: "https://a", secrets: [s]}}
  - {name: h4, "on": run.failed, uses: u.v}
output: {o: "1", l: [a]}
rules:
  - {check: "true", message: m, name: r}
  - {command: {argv: [a, b], env: {E: v}, cwd: c}, name: r2}
  - {uses: u.v, with: {k: v}, name: r3}
steps:
  - name: a
    uses: u.v
    with: {k: {k2: v}}
    description: d
    capabilities: [c]
    queue: q
    resources: {r: exclusive}
    limits: [{name: l, per: "${{ input.x }}", running: 1}]
    undo: {uses: u.w, with: {k: v}, queue: q, capabilities: [c]}
    pre: [{check: "true", message: m, name: n}]
    post: [{command: {argv: [a, b]}}]
    hooks: [{"on": step.failed, uses: u.v, name: hh}]
    if: "true"
    depends_on: []
  - {name: cmd, command: {argv: [a, b], env: {E: v}, cwd: c}, depends_on: [a]}
  - {name: web, http: {url: "https://a", headers: {H: v}, body: {k: v}}, depends_on: [{step: a, allow: [skipped]}]}
  - {name: ag, agent: ag.b, action: do, with: {k: v}, depends_on: [a], undo: {agent: ag.b, action: undo}}
  - name: gate
    approval:
      prompt: p
      facts: {f: v}
      roles: [r]
      groups: [g]
      approvers: [w]
      not: [requester]
      escalate: [{roles: [r], groups: [g], approvers: [a]}]
      on_deadline: escalate
      deadline: 1h
    depends_on: [a]
  - {name: gate2, approval: {prompt: p}, depends_on: [a]}
  - {name: w, wait: {event: ev, if: "true"}, depends_on: [a]}
  - {name: w2, wait: {event: ev, until: "true"}, depends_on: [a]}
  - {name: s, sleep: {for: 2h}, depends_on: [a]}
  - {name: s2, sleep: {until: "2026-11-03T10:15:00Z"}, depends_on: [a]}
  - {name: m, uses: u.v, map: {over: "${{ [1] }}"}, with: {k: v}, depends_on: [a]}
  - {name: rp, uses: u.v, repeat: {until: "true", max: 3}, with: {k: v}, depends_on: [a]}
  - {name: rw, uses: u.v, repeat: {while: "true", max: 3}, with: {k: v}, depends_on: [a]}
  - {name: ch, workflow: {name: other}, with: {k: v}, depends_on: [a]}
  - name: sw
    switch:
      - {name: c1, uses: u.v, if: "true", with: {k: v}, queue: q, resources: {r: shared}, capabilities: [c]}
      - {name: c2, workflow: {name: other}, with: {k: v}}
    depends_on: [a]
  - {name: man, uses: u.v, completion: manual, hold: {prompt: p, roles: [r]}, depends_on: [a]}
"""
EVALUATED = {
    "with", "output", "body", "check", "if", "when", "until", "while", "over", "for", "facts", "url", "headers", "argv",
    "env", "cwd", "per",
}  # fmt: skip
"""Keys below which texts are evaluated."""
PROSE = {"description"}
NOT_EVALUATED = {("hooks", "command"), ("hooks", "webhook"), ("sleep", "until")}
"""Where such a key is no expression."""
X = "${{ input.x }}"
WHOLE = yaml.safe_load(DEFINITION)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every text of a definition, and every key that its author chooses."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if path and path[-1] in ("labels", "resources", "env", "headers", "facts", "with", "output", "input"):
                yield (*path, {"key": key})
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from places(inner, (*path, place))
    elif isinstance(value, str):
        yield path


def is_evaluated(path: tuple[Any, ...]) -> bool:
    words = [part for part in path if isinstance(part, str)]
    if isinstance(path[-1], dict) or any(pair in NOT_EVALUATED for pair in pairwise(words)):
        return False
    if path[-2:] == ("argv", 0) or words[0] == "triggers":
        return False  # data never chooses the program; a trigger reads its event
    return bool(EVALUATED & set(words)) or words[-1] in PROSE


def named(path: tuple[Any, ...]) -> str:
    return ".".join(str(part["key"]) + " (key)" if isinstance(part, dict) else str(part) for part in path)


@pytest.mark.parametrize("path", list(places(WHOLE)), ids=named)
def test_an_expression_is_evaluated_or_refused(path: tuple[Any, ...]) -> None:
    changed = at = copy.deepcopy(WHOLE)
    for part in path[:-1]:
        at = at[part]
    if isinstance(path[-1], dict):
        at[X] = at.pop(path[-1]["key"])
    else:
        at[path[-1]] = X
    report = check_text(json.dumps(changed), "full.json")
    assert (report.definition is not None) is is_evaluated(path), [str(problem) for problem in report.problems]


def test_the_definition_above_is_valid_and_has_every_key_that_holds_a_text() -> None:
    assert check_text(json.dumps(WHOLE), "full.json").problems == ()
    written = {part for path in places(WHOLE) for part in path if isinstance(part, str)}
    numbers = {
        "version", "timeout", "lease", "grace", "priority", "slots", "order", "transactional", "retry", "effect",
        "flow", "then", "on_failure", "hook_failure", "on_exhausted", "compensate_when", "rules", "validate",
        "input_schema", "output_schema",
    }  # fmt: skip
    known = {field.alias or name for block in (StepBlock, WorkflowBlock) for name, field in block.model_fields.items()}
    assert known - numbers <= written | {"steps", "triggers", "depends_on"}
