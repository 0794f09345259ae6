"""What the command line can do, the service can do; the page of the service lists what it leaves out, and why."""

from __future__ import annotations

import re

from stepkeep.api.access import ROUTES
from stepkeep.cli.main import app
from tests.api.test_curl import PAGE
from tests.cli.surface import commands

SAME: dict[str, str] = {
    "check": "POST /workflows/check",
    "start": "POST /runs",
    "publish": "POST /workflows",
    "rerun": "POST /runs/{run_id}/rerun",
    "retry": "POST /runs/{run_id}/retry",
    "fork": "POST /runs/{run_id}/fork",
    "migrate": "POST /runs/{run_id}/migrate",
    "runs": "GET /runs",
    "show": "GET /runs/{run_id}",
    "status": "GET /status",
    "statistics": "GET /statistics",
    "wait": "GET /runs/{run_id}/result",
    "explain": "GET /explain",
    "certify": "GET /runs/{run_id}/certificate",
    "evidence": "GET /runs/{run_id}/evidence",
    "definitions": "GET /workflows",
    "workers": "GET /workers",
    "approvals": "GET /approvals",
    "approve": "POST /runs/{run_id}/approve",
    "reject": "POST /runs/{run_id}/reject",
    "request-changes": "POST /runs/{run_id}/request-changes",
    "escalate": "POST /runs/{run_id}/escalate",
    "reassign": "POST /runs/{run_id}/reassign",
    "annotate": "POST /runs/{run_id}/notes",
    "freeze": "POST /runs/{run_id}/freeze",
    "decide": "POST /runs/{run_id}/steps/{step}/decide",
    "complete": "POST /runs/{run_id}/steps/{step}/complete",
    "token": "POST /runs/{run_id}/steps/{step}/token",
    "send": "POST /runs/{run_id}/messages",
    "emit": "POST /events",
    "cancel": "POST /runs/{run_id}/cancel",
    "pause": "POST /runs/{run_id}/pause",
    "resume": "POST /runs/{run_id}/resume",
    "rollback-preview": "GET /runs/{run_id}/rollback",
    "delegate": "POST /delegations",
    "jobs start": "POST /runs/bulk",
    "jobs list": "GET /jobs",
    "jobs show": "GET /jobs/{job_id}",
    "jobs stop": "POST /jobs/{job_id}/stop",
    "quarantine": "POST /runs/{run_id}/quarantine",
    "users create": "POST /users",
    "users list": "GET /users",
    "users show": "GET /users/{name}",
    "users grant": "POST /users/{name}/grant",
    "users revoke": "POST /users/{name}/revoke",
    "users disable": "POST /users/{name}/disable",
    "users enable": "POST /users/{name}/enable",
    "users history": "GET /history",
    "keys create": "POST /api-keys",
    "keys list": "GET /api-keys",
    "keys rotate": "POST /api-keys/{key_id}/rotate",
    "keys revoke": "DELETE /api-keys/{key_id}",
    "tenants create": "POST /tenants",
    "tenants set": "PATCH /tenants/{name}",
    "tenants signing": "PUT /tenants/{name}/signing",
    "tenants list": "GET /tenants",
    "streams list": "GET /runs/{run_id}/streams",
    "streams read": "GET /runs/{run_id}/streams/{name}/pieces",
    "tail": "GET /runs/{run_id}/streams/{name}",
    "limits list": "GET /limits",
    "limits show": "GET /limits/{name}",
    "limits set": "POST /limits/set",
    "limits clear": "POST /limits/clear",
    "slots list": "GET /slots",
    "slots set": "POST /slots",
    "slots clear": "POST /slots/clear",
    "resources list": "GET /resources",
    "resources set": "POST /resources",
    "resources clear": "POST /resources/clear",
    "hooks add": "POST /hooks",
    "hooks remove": "DELETE /hooks/{name}",
    "hooks list": "GET /hooks",
    "hooks test": "POST /hooks/{name}/test",
    "network list": "GET /network",
    "schemas publish": "PUT /schemas/{ref}",
    "schemas list": "GET /schemas",
    "schemas show": "GET /schemas/{ref}",
    "policies publish": "POST /policies",
    "policies list": "GET /policies",
    "policies show": "GET /policies/{revision}",
    "policies off": "POST /policies/off",
    "policies replay": "GET /runs/{run_id}/policy",
    "mailbox list": "GET /mailbox",
    "mailbox drop": "DELETE /mailbox/{business_key}",
    "sinks add": "POST /sinks",
    "sinks list": "GET /sinks",
    "sinks remove": "DELETE /sinks/{name}",
    "sinks test": "POST /sinks/{name}/test",
    "outbox list": "GET /outbox",
    "outbox show": "GET /runs/{run_id}/outbox/{name}",
    "outbox redrive": "POST /outbox/redrive",
    "outbox drop": "POST /runs/{run_id}/outbox/{name}/drop",
    "outbox status": "GET /outbox/status",
    "outbox history": "GET /outbox/history",
    "withdraw": "POST /workflows/{name}/versions/{version}/withdraw",
    "restore": "POST /workflows/{name}/versions/{version}/restore",
    "triggers list": "GET /triggers",
    "triggers show": "GET /triggers/{name}",
    "triggers next": "GET /triggers/{name}/next",
    "triggers add": "POST /triggers",
    "triggers pause": "POST /triggers/{name}/pause",
    "triggers resume": "POST /triggers/{name}/resume",
    "triggers fire": "POST /triggers/{name}/fire",
    "triggers backfill": "POST /triggers/{name}/backfills",
    "triggers remove": "DELETE /triggers/{name}",
    "audit": "GET /audit",
    "diff": "GET /workflows/{name}/compare",
    "log export": "GET /runs/{run_id}/log",
}
"""Commands and the route that does the same."""


def test_every_command_has_a_route_or_a_reason() -> None:
    section = (
        PAGE.read_text(encoding="utf-8").partition("## What only the command line does\n")[2].partition("\n## ")[0]
    )
    left_out = set(re.findall(r"`([a-z -]+)`", section))
    there = {" ".join(path) for path, _ in commands(app)}
    whole = {name for name in left_out if any(one.startswith(f"{name} ") for one in there)}
    unknown = {one for one in there - SAME.keys() - left_out if one.partition(" ")[0] not in whole}
    assert unknown == set(), "add a route (SAME in this file), or a reason in docs/http.md"
    assert SAME.keys() <= there
    assert left_out <= there | whole
    assert not left_out & SAME.keys()
    assert set(SAME.values()) <= set(ROUTES)
