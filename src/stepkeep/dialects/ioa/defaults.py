"""Answers of this dialect where the seeds differ, or where seed 000 is open. Data for the documentation."""
# ruff: noqa: E501 - a table: its rows stay one line each

from __future__ import annotations

from stepkeep.dialects.dialect import Default

# fmt: off
DEFAULTS = (
    Default("What does the limit count?", "maxRetries counts retries: N means N + 1 executions; 3 unless written, 0 to 9", "000 §3.2"),
    Default("Backoff", "exponential from 1s, constant or linear from 5s, never more than 60s (or than what was written as initialDelay); a duration as backoff is constant", "000 §3.2"),
    Default("Is a timeout retried?", "no, straight to onFailure", "000 §3.1, §3.4"),
    Default("Are unknown errors retried?", "agent, external and unknown errors only where a retryPolicy is written; transient ones always", "000 §3.1"),
    Default("Which policy applies?", "the step's onFailure, else failurePolicy, else abort; failurePolicy: retry is refused, retries belong to retryPolicy", "000 §3.3"),
    Default("Is a skipped dependency satisfied?", "yes: a fan-in copes with missing results; a rejected gate satisfies no step after it", "000 §3.3, §5.1"),
    Default("Sequence or graph?", "always a graph: steps without dependsOn start immediately", "000 §5.1"),
    Default("What is a side effect?", "a step with a compensation entry writes, any other reads", "000 §4.2 rule 5"),
    Default("Which steps are undone?", "completed ones with a compensation entry, in reverse order of completion", "000 §4.1, §4.2"),
    Default("A hook fails", "stop there: the workflow is failed, with partial rollback", "000 §4.2 rule 4"),
    Default("Full rollback ends as", "completed", "000 §1 compensating → completed"),
    Default("Rollback with nothing to undo", "failed, without passing through compensating", "000 §4.2 rule 1"),
    Default("Run shows it waits", "blocked while any step waits for input from outside", "000 §1 executing → blocked"),
    Default("Deadline of a gate", "its step's timeout; then it has failed (category timeout), and its onFailure decides", "000 §1 blocked → failed, §3.4"),
    Default("Attempt timeout", "5m for a step without one; none for a gate without one", "000 §6 guideline 1"),
    Default("Retries of a compensation", "2 attempts, 1s apart; 5m each", "000 §4.2 rule 3"),
    Default("Cancel", "an extension: the seed has no cancelled", "design §4"),
    Default("An agent reports `governance`", "its step waits for an approval, people are told (`gate.escalated`), and no attempt is used; a rejection fails it", "000 §3.1 block + escalate"),
    Default("The workflow's timeout, while an agent runs", "abort ends the workflow at once, and the attempt is in doubt; compensate waits for the agent as long as the grace period, 30s", "000 §3.4"),
)
# fmt: on
