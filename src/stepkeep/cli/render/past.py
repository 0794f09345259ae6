"""A run as it stood, as text: the entry, the run, and one line per step. Pure, from a view to lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from stepkeep.cli.render.look import words
from stepkeep.cli.render.remarks import failure
from stepkeep.cli.render.times import clock
from stepkeep.edges.redaction import hide_secrets

INDENT = "    "


def past_lines(view: Mapping[str, Any]) -> Iterator[str]:
    """The whole of it."""
    run, entry = view["run"], view["at"]
    yield f"run {run['id']} ({run['workflow']} v{run['version']}): {words(run['state'])} since {clock(run['since'])}"
    yield f"after entry {entry['seq']} of {entry['last_seq']}, {entry['time']}: {entry['event']} by {entry['actor']}"
    if failure(run):
        yield failure(run)
    for step in view["steps"]:
        yield f"{INDENT}{step['name']}: {words(step['state'])} since {clock(step['since'])}{_particulars(step)}"
    for finding in view["findings"]:
        yield f"the journal is not sound here: line {finding['line']}: {finding['message']}"


def _particulars(step: Mapping[str, Any]) -> str:
    said = []
    if step["attempt"]:
        said.append(f"attempt {step['attempt']}")
    if step["holder"]:
        said.append(f"held by {step['holder']}")
    if step["due_at"]:
        said.append(f"due {clock(step['due_at'])}")
    if failure(step):
        said.append(failure(step))
    if step.get("output_unknown"):
        said.append(f"output unknown: {step['output_unknown']}")
    elif step["output"] is not None:
        said.append(f"output {json.dumps(hide_secrets(step['output']), ensure_ascii=False)}")
    return "".join(f", {one}" for one in said)
