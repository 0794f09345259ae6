"""Documents that fuzzing starts from: each format with nearly all of its words, and texts that are traps as they stand.

They need no handlers. Targets change them; nothing runs them as they are.
"""

from __future__ import annotations

from typing import Final

NATIVE: Final = """\
workflow: everything
version: 3
description: A workflow with every kind of step.
timeout: 26h
on_failure: compensate
hook_failure: stop
lease: 30s
grace: 10s
priority: 5
labels: { team: billing, tier: gold }
input:
  email: { type: string, description: the address }
  seats: { type: integer, required: false }
steps:
  - name: create
    uses: accounts.create
    with: { email: "${{ input.email }}", tags: [a, 1, 1.5, true, null], nested: { deep: { er: "x-${{ run.id }}" } } }
    timeout: 30s
    retry: { max_attempts: 5, max_losses: 2, backoff: linear, initial: 1s, factor: 3, max: 9s, jitter: 1, on: [agent] }
    undo: { uses: accounts.remove, with: "${{ steps.create.output }}", timeout: 5s, retry: { max_attempts: 2 } }
    rules:
      - check: ${{ output.id.startsWith("acc_") }}
        message: the account has no proper id
    effect: write
    compensate_when: attempted
    capabilities: [gpu]
    queue: slow
    order: 2
  - name: sign-off
    approval:
      { prompt: "May it, ${{ input.email }}?", roles: [law], quorum: 2, not: [ann], deadline: 24h, on_deadline: fail }
    depends_on: [create]
  - name: fetch
    http:
      method: POST
      url: https://example.com/${{ input.email }}
      headers: { accept: text/plain }
      body: { id: "${{ steps.create.output.id }}" }
    depends_on: [create]
    on_failure: continue
  - name: pack
    command: { argv: [tar, -cf, "${{ input.email }}.tar"], env: { LANG: C }, cwd: /tmp }
    depends_on: [{ step: fetch, allow: [failed, skipped] }]
    if: steps.fetch.state == "succeeded" && size(input.email) > 3
    on_failure: skip
  - name: ask
    agent: helper.one
    action: Look at ${{ steps.pack.output }}
    depends_on: [pack, sign-off]
    completion: { mode: manual, deadline: 1h }
  - name: paid
    wait: { event: payment.settled, deadline: 2d }
    depends_on: [ask]
    description: Money comes first.
output:
  account: ${{ steps.create.output.id }}
rules:
  - ${{ output.account != "" }}
"""

ACTION: Final = """\
schemaVersion: 2
workflowId: correct-invoice
workspaceId: finance
name: Correct an invoice
version: 1
active: true
executionTier: Auto
actions:
  - { actionId: read, order: 1, portFamily: FinanceAccounting, operation: "invoice:read", capability: "invoice:read" }
  - actionId: correct
    order: 2
    portFamily: FinanceAccounting
    capability: invoice:write
    dependsOn: [read]
    inputs: { invoice: '${{ steps["read"].output.invoice }}' }
    retryPolicy: { maxAttempts: 5, initialBackoffMs: 200, backoffMultiplier: 2.0, maxBackoffMs: 5000 }
    compensation:
      compensationInput: { invoiceId: '${{ steps["correct"].output.invoice }}', reason: not completed }
      timeoutMs: 60000
  - actionId: charge
    order: 4
    portFamily: PaymentsBilling
    capability: invoice:read
    dependsOn: [correct]
    executionTierOverride: HumanApprove
    approvalDeadlineMs: 86400000
  - actionId: confirm
    order: 5
    portFamily: FinanceAccounting
    capability: invoice:read
    dependsOn: [charge]
    completionMode: ManualOnly
    completionDeadlineMs: 259200000
capabilities:
  invoice:read: { safety: { idempotent: true } }
  invoice:write:
    safety: { idempotent: true, supportsCompensation: true }
    compensationOperation: invoice:reverse
    compensationInputSchema:
      type: object
      required: [invoiceId, reason]
      properties: { invoiceId: { type: string }, reason: { type: string, minLength: 1 } }
"""

IOA: Final = """\
apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: { name: new-customer, version: 1, owner: { name: growth, role: maintainer }, labels: { tier: one } }
spec:
  description: Set up a new customer, or nothing at all.
  domainsInvolved: [growth, product]
  trigger: { event: growth.signup_completed, condition: plan == 'paid' }
  timeout: "15m"
  failurePolicy: compensate
  steps:
    - name: create-account
      agent: growth-optimizer
      action: Create the account
      timeout: "30s"
      retryPolicy: { maxRetries: 3, backoff: exponential, initialDelay: "1s", maxDelay: "60s" }
      onFailure: compensate
    - { name: gate, agent: people, action: "GATE: may it?", dependsOn: [create-account], timeout: "2m" }
    - { name: welcome, agent: growth-optimizer, action: Send mail, dependsOn: [gate], timeout: "15s", onFailure: skip }
  compensation:
    - { step: create-account, action: Deactivate account, agent: growth-optimizer }
"""

LINEAR: Final = """\
workflowType: order.process
workflowVersion: 1
leaseSeconds: 30
retryPolicy: { maxAttempts: 3, baseBackoffMs: 100, maxBackoffMs: 1000 }
steps:
  - VALIDATE
  - { stepType: PAY, retryPolicy: { maxAttempts: 2 }, timeoutMs: 5000 }
  - { stepType: SHIP, handler: warehouse.ship }
"""

RUN: Final = """\
template: answer-with-approval
version: 1
priority: 0
max_attempts: 3
retry_base_delay: 100ms
reclaim_after: 30s
default_step_timeout: 30s
steps:
  - { position: 1, name: LLM }
  - { position: 2, name: TOOL, timeout_seconds: 1 }
  - { position: 3, name: APPROVAL }
"""

WORKSTREAM: Final = """\
workstream_id: nightly-quality
name: Nightly quality
description: Builds and checks.
max_duration_seconds: 300
validation_rules:
  post_execution: ["${{ steps.test.output.json.passed > 0 }}"]
tasks:
  - task_id: build
    name: Build the package
    type: custom
    critical: true
    execution:
      command: python3 tasks.py build ${{ has(input.mode) ? input.mode : "success" }}
      working_directory: examples
      timeout_seconds: 60
      max_retries: 1
      retry_delay_seconds: 0.1
  - task_id: test
    name: Run the tests
    type: pytest
    dependencies: [build]
    execution: { command: [python3, tasks.py, test], timeout_seconds: 2, max_retries: 0 }
    validation_rules: { post_execution: ["${{ output.json.failed == 0 }}"] }
"""

DOCUMENTS: Final = {
    "native": NATIVE,
    "action": ACTION,
    "ioa": IOA,
    "linear": LINEAR,
    "run": RUN,
    "workstream": WORKSTREAM,
}

_STEP = "workflow: a\nsteps:\n  - name: b\n    uses: c\n"

TRAPS: Final = (
    "",
    "\ufeff" + _STEP,
    "\ufeff",
    "---\n...\n---\n",
    "%YAML 1.1\n---\n" + _STEP,
    "[" * 20_000,
    "{" * 20_000,
    "- " * 5_000 + "a",
    "a: " * 500,
    "? " * 2_000,
    "!!python/object/apply:os.system ['true']\n",
    "!<tag:yaml.org,2002:python/name:os.system> x\n",
    "a: &a [x]\nb: *a\n",
    "a: &a {b: *a}\n",
    "l0: &l0 [a,a]\n" + "".join(f"l{n}: &l{n} [*l{n - 1},*l{n - 1},*l{n - 1}]\n" for n in range(1, 30)),
    "base: &b {uses: c}\nworkflow: a\nsteps:\n  - {<<: *b, name: d}\n",
    "workflow: a\nworkflow: b\nsteps: []\n",
    "workflow: a\nsteps: &s []\noutput: *s\n",
    "workflow: a\nversion: " + "9" * 5_000 + "\nsteps: []\n",
    "workflow: a\nversion: 1e400\nsteps: []\n",
    "workflow: a\nversion: .nan\nsteps: []\n",
    "workflow: a\nversion: -.inf\nsteps: []\n",
    "workflow: a\nversion: 0x" + "f" * 2_000 + "\nsteps: []\n",
    "workflow: a\nversion: 1_000:30:30\nsteps: []\n",
    "workflow: 2026-01-01\nsteps: []\n",
    "workflow: !!binary AAAA\nsteps: []\n",
    _STEP + "    with: {v: '${{ {1.5: 2} }}'}\n",
    _STEP + "    with: {v: '${{ {null: 2} }}'}\n",
    _STEP + "    with: {v: '${{ {[1]: 2} }}'}\n",
    _STEP + "    with: '" + "${{ 1 }}" * 3_000 + "'\n",
    _STEP + "    with: " + "{a: " * 200 + "1" + "}" * 200 + "\n",
    _STEP + "    if: '" + "(" * 2_000 + "'\n",
    _STEP + "    if: '" + "!" * 4_000 + "true'\n",
    _STEP + "    if: 'true" + " && true" * 500 + "'\n",
    _STEP + "    if: '" + "a" * 200_000 + "'\n",
    _STEP + "    rules: [" + "'true'," * 3_000 + "]\n",
    _STEP + "    description: " + "x" * 1_000_000 + "\n",
    "workflow: a\nsteps:\n" + "".join(f"  - {{name: s{n}, uses: c}}\n" for n in range(3_000)),
    "workflow: a\nsteps:\n" + "".join(f"  - {{name: s{n}, uses: c, depends_on: [s{n + 1}]}}\n" for n in range(1_000)),
    _STEP + '  - name: "\\u001b[2J\\u202e"\n    uses: c\n',
    _STEP + '    "\\u001b]0;x\\u0007\\n": 1\n',
    "workflow: a\nsteps:\n  - name: " + "x" * 100_000 + "\n    uses: c\n",
    "\x00",
    "workflow: a\x00\nsteps: []\n",
    "a\rb\r\nc\x85d\u2028e",
    "\t- a\n",
    "'" * 100_001,
    '"' + "\\" * 100_001,
    "|\n" * 1_000,
    "# only a comment",
    "null",
    "[]",
    "{}",
    "0",
    "~",
)
"""Texts that are hostile as they stand, for YAML."""

JSON_TRAPS: Final = (
    "",
    "[" * 100_000,
    '{"a":' * 50_000,
    '{"workflow": "a", "workflow": "b", "steps": []}',
    '{"workflow": "\\ud800", "steps": []}',
    '{"workflow": "\\u0000", "steps": []}',
    '{"workflow": "a", "version": 1e999, "steps": []}',
    '{"workflow": "a", "version": ' + "9" * 10_000 + ', "steps": []}',
    '{"workflow": "a", "version": NaN, "steps": []}',
    '{"workflow": "a", "steps": [{"name": "\\u001b[2J", "uses": "\\u202e"}]}',
    '{"\\u001b]0;x\\u0007\\nforged.json:1:1: fine": 1}',
    '{"workflow": "a", "steps": [{"name": "b", "uses": "c", "with": {"v": "${{ {1.5: 2} }}"}}]}',
    "\ufeff{}",
    "{} {}",
    "// c",
    "'a'",
    "\x00",
)
"""The same for JSON."""
