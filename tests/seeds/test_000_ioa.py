"""Seed 000, the IOA workflow state machine: every row, rule and edge case, played on a real store in its own words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.seeds.ioa_stage import Stage, stage_on

from stepkeep.kernel.definition import SECOND
from stepkeep.kernel.errors import Conflict

ONE = "steps: [{ name: a, agent: x, action: do, timeout: 1m }]"
CHAIN = """
timeout: 1h
steps:
  - { name: a, agent: x, action: do, onFailure: compensate }
  - { name: b, agent: x, action: do, dependsOn: [a], onFailure: compensate }
  - { name: c, agent: x, action: do, dependsOn: [b], onFailure: compensate }
  - { name: d, agent: x, action: do, dependsOn: [c], onFailure: compensate }
compensation:
  - { step: a, action: undo a, agent: x }
  - { step: b, action: undo b, agent: x }
  - { step: c, action: undo c, agent: x }
  - { step: d, action: undo d, agent: x }
"""
GATED = """
timeout: 26h
failurePolicy: %s
steps:
  - { name: build, agent: x, action: do }
  - { name: sign, agent: x, action: "GATE: May it go out?", dependsOn: [build], timeout: 24h, onFailure: %s }
  - { name: ship, agent: x, action: do, dependsOn: [sign] }
compensation:
  - { step: build, action: throw it away, agent: x }
"""
HOUR = 3600


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_on(f"sqlite:///{tmp_path}/ioa.db") as opened:
        yield opened


class TestWorkflowStates:
    """Section 1."""

    def test_a_workflow_is_idle_after_creation_until_it_is_started(self, stage: Stage) -> None:
        stage.start(ONE, start_now=False)
        assert stage.run() == ["idle"]
        stage.start_idle()
        assert stage.run() == ["idle", "queued"]

    def test_it_waits_in_the_queue_until_a_worker_comes(self, stage: Stage) -> None:
        stage.start(ONE)
        assert stage.state == "queued"
        stage.claim("a")
        assert stage.run() == ["idle", "queued", "executing"], "never idle → executing"

    def test_it_is_completed_when_all_steps_finished(self, stage: Stage) -> None:
        stage.start(ONE).finish("a")
        assert stage.run() == ["idle", "queued", "executing", "completed"]

    def test_it_is_failed_when_a_step_failed_and_the_policy_is_not_compensate(self, stage: Stage) -> None:
        stage.start(ONE).fail("a")
        assert stage.run() == ["idle", "queued", "executing", "failed"]

    def test_it_compensates_from_executing_when_the_policy_says_so(self, stage: Stage) -> None:
        """The table has executing → compensating; the picture's way over failed would leave a terminal state."""
        stage.start(CHAIN).finish("a").fail("b")
        assert stage.run() == ["idle", "queued", "executing", "compensating"]

    def test_a_whole_rollback_ends_completed(self, stage: Stage) -> None:
        stage.start(CHAIN).finish("a").fail("b").finish("undo:a")
        assert stage.run()[-2:] == ["compensating", "completed"]

    def test_a_failed_compensation_ends_failed(self, stage: Stage) -> None:
        stage.start(CHAIN).finish("a").fail("b").fail("undo:a", "validation")
        assert stage.run()[-2:] == ["compensating", "failed"]

    def test_a_gate_blocks_it_and_its_approval_lets_it_go_on(self, stage: Stage) -> None:
        stage.start(GATED % ("abort", "abort")).finish("build")
        assert stage.run()[-2:] == ["executing", "blocked"]
        stage.approve()
        assert stage.run()[-2:] == ["blocked", "executing"]
        stage.finish("ship")
        assert stage.state == "completed"

    def test_a_rejection_is_input_too_and_fails_the_gate(self, stage: Stage) -> None:
        """Exit condition of blocked: approval or rejection received."""
        stage.start(GATED % ("abort", "abort")).finish("build").reject()
        assert stage.run()[-3:] == ["blocked", "executing", "failed"]
        assert stage.states("sign") == ["pending", "running", "failed"]

    def test_a_timeout_on_a_blocked_step_leads_from_blocked_to_failed(self, stage: Stage) -> None:
        stage.start(GATED % ("abort", "abort")).finish("build").later(24 * HOUR + 1)
        assert stage.run()[-2:] == ["blocked", "failed"]

    def test_a_gate_that_times_out_under_compensate_rolls_back(self, stage: Stage) -> None:
        """The table's blocked → failed and section 3.4's onFailure disagree; the extension is listed."""
        stage.start(GATED % ("abort", "compensate")).finish("build").later(24 * HOUR + 1).finish("undo:build")
        assert stage.run()[-3:] == ["blocked", "compensating", "completed"]
        assert ("blocked", "compensating") in stage.extensions()

    def test_one_open_gate_blocks_it_whatever_else_may_move(self, stage: Stage) -> None:
        stage.start("""
            steps:
              - { name: sign, agent: x, action: "GATE: well?" }
              - { name: a, agent: x, action: do }
              - { name: b, agent: x, action: do, dependsOn: [a] }
        """)
        stage.finish("a")
        assert stage.run() == ["idle", "queued", "executing", "blocked"]
        assert stage.ready() == {"b"}
        stage.approve().finish("b")
        assert stage.run()[-3:] == ["blocked", "executing", "completed"]

    def test_two_open_gates_block_it_until_the_last_is_decided(self, stage: Stage) -> None:
        gates = '{ name: one, agent: x, action: "GATE: 1" }, { name: two, agent: x, action: "GATE: 2" }'
        stage.start(f"steps: [{gates}]").approve("one")
        assert stage.state == "blocked"
        stage.approve("two")
        assert stage.run() == ["idle", "queued", "executing", "blocked", "executing", "completed"]

    @pytest.mark.parametrize("ending", ["completed", "failed"])
    def test_a_terminal_state_is_never_left(self, stage: Stage, ending: str) -> None:
        stage.start(ONE)
        (stage.finish if ending == "completed" else stage.fail)("a")
        with pytest.raises(Conflict):
            stage.cancel()
        with pytest.raises(Conflict):
            stage.start_idle()
        stage.later(HOUR)
        assert stage.state == ending

    def test_a_compensating_workflow_does_not_resume(self, stage: Stage) -> None:
        stage.start(CHAIN).finish("a", "b").fail("c")
        assert stage.ready() == {"undo:b"}, "only hooks are run"
        stage.cancel()
        stage.finish("undo:b", "undo:a")
        assert stage.run()[-2:] == ["compensating", "completed"]


class TestExtensions:
    """What the engine does and the seed has no arrow for."""

    def test_a_workflow_may_be_cancelled_before_it_starts(self, stage: Stage) -> None:
        stage.start(ONE, start_now=False).cancel()
        assert stage.run() == ["idle", "cancelled"]
        assert stage.states("a") == ["pending", "cancelled"]

    def test_in_the_queue(self, stage: Stage) -> None:
        stage.start(ONE).cancel()
        assert stage.run()[-2:] == ["queued", "cancelled"]

    def test_at_work(self, stage: Stage) -> None:
        stage.start(ONE).claim("a")
        stage.cancel()
        assert stage.run()[-2:] == ["executing", "cancelled"]
        assert stage.states("a") == ["pending", "running", "cancelled"]

    def test_and_while_it_is_blocked(self, stage: Stage) -> None:
        stage.start(GATED % ("abort", "abort")).finish("build").cancel()
        assert stage.run()[-2:] == ["blocked", "cancelled"]
        assert stage.extensions() == {("blocked", "cancelled"), ("running", "cancelled"), ("pending", "cancelled")}

    def test_a_cancel_may_ask_for_compensation(self, stage: Stage) -> None:
        stage.start(CHAIN).finish("a").cancel(compensate=True).finish("undo:a")
        assert stage.run()[-3:] == ["executing", "compensating", "completed"]

    def test_a_workflow_that_times_out_in_the_queue_has_failed(self, stage: Stage) -> None:
        """Section 3.4: the workflow's timeout triggers its failure, wherever it is."""
        stage.start(f"timeout: 30m\n{ONE}").later(1801)
        assert stage.run() == ["idle", "queued", "failed"]


class TestStepStates:
    """Section 2."""

    def test_a_step_is_pending_until_its_dependencies_are_met_and_it_is_claimed(self, stage: Stage) -> None:
        stage.start(CHAIN).claim("a")
        assert stage.states("a") == ["pending", "running"]
        assert stage.states("b") == ["pending"]

    def test_it_ends_completed(self, stage: Stage) -> None:
        stage.start(ONE).finish("a")
        assert stage.states("a") == ["pending", "running", "completed"]

    def test_it_ends_failed(self, stage: Stage) -> None:
        stage.start(ONE).fail("a")
        assert stage.states("a") == ["pending", "running", "failed"]

    def test_it_ends_skipped_under_skip(self, stage: Stage) -> None:
        stage.start("steps: [{ name: a, agent: x, action: do, onFailure: skip }]").fail("a")
        assert stage.states("a") == ["pending", "running", "skipped"]
        assert stage.state == "completed"

    def test_a_gate_runs_from_its_opening_on(self, stage: Stage) -> None:
        stage.start(GATED % ("abort", "abort")).finish("build")
        assert stage.states("sign") == ["pending", "running"]

    def test_a_retry_is_no_way_back_to_pending(self, stage: Stage) -> None:
        stage.start(ONE).fail("a", "transient").later(1).fail("a", "transient").later(2).finish("a")
        assert stage.states("a") == ["pending", "running", "completed"]


class TestErrorCategories:
    """Section 3.1."""

    def retried(self, stage: Stage, category: str, policy: str = "") -> bool:
        stage.start(f"steps: [{{ name: a, agent: x, action: do, timeout: 1m{policy} }}]").fail("a", category)
        return stage.state == "executing"

    WRITTEN = ', retryPolicy: { maxRetries: 1, backoff: "1s" }'

    def test_transient_errors_are_retried_by_default(self, stage: Stage) -> None:
        assert self.retried(stage, "transient")

    @pytest.mark.parametrize("category", ["agent", "external", "unknown"])
    def test_agent_and_external_errors_are_retried_only_where_that_is_configured(
        self, stage: Stage, category: str
    ) -> None:
        assert not self.retried(stage, category)

    @pytest.mark.parametrize("category", ["agent", "external", "unknown", "transient"])
    def test_with_a_retry_policy_they_are(self, stage: Stage, category: str) -> None:
        assert self.retried(stage, category, self.WRITTEN)

    @pytest.mark.parametrize("category", ["timeout", "validation", "governance"])
    def test_timeouts_validation_and_governance_are_never_retried(self, stage: Stage, category: str) -> None:
        assert not self.retried(stage, category, self.WRITTEN)

    def test_a_worker_that_dies_is_replaced_and_the_step_runs_on(self, stage: Stage) -> None:
        stage.start(ONE).claim("a", lease=30 * SECOND)
        stage.later(31)
        stage.claim("a")
        stage.finish("a")
        assert stage.states("a") == ["pending", "running", "completed"]
        assert stage.view()["status"]["retries"] == 1


class TestRetryPolicy:
    """Section 3.2."""

    def delays(self, stage: Stage, policy: str, count: int) -> list[int]:
        """The pauses before each retry, found by moving the clock second by second."""
        stage.start(f"steps: [{{ name: a, agent: x, action: do, timeout: 1m, retryPolicy: {{ {policy} }} }}]")
        found = []
        for _ in range(count):
            stage.fail("a", "transient")
            found.append(self.pause(stage))
        return found

    def pause(self, stage: Stage) -> int:
        [row] = stage.wait(stage.bench.store.read_steps("default", stage.run_id))
        now = stage.wait(stage.bench.store.now())
        assert row.due_at is not None
        seconds = round((row.due_at - now) / SECOND)
        stage.later(seconds - 1)
        assert stage.ready() == set(), "not before its time"
        stage.later(1.5)
        return seconds

    def test_constant_is_the_same_each_time(self, stage: Stage) -> None:
        assert self.delays(stage, "backoff: constant", 3) == [5, 5, 5]

    def test_linear_grows_by_the_same(self, stage: Stage) -> None:
        assert self.delays(stage, "backoff: linear", 3) == [5, 10, 15]

    def test_exponential_doubles(self, stage: Stage) -> None:
        assert self.delays(stage, "maxRetries: 4", 4) == [1, 2, 4, 8]

    def test_no_delay_is_longer_than_sixty_seconds(self, stage: Stage) -> None:
        assert self.delays(stage, 'maxRetries: 5, backoff: linear, initialDelay: "25s"', 4) == [25, 50, 60, 60]

    def test_or_than_what_is_written(self, stage: Stage) -> None:
        assert self.delays(stage, 'maxRetries: 4, initialDelay: "2s", maxDelay: "5s"', 4) == [2, 4, 5, 5]

    def test_a_duration_is_a_constant_delay(self, stage: Stage) -> None:
        assert self.delays(stage, 'maxRetries: 2, backoff: "90s"', 2) == [90, 90]

    def test_max_retries_counts_retries_so_there_is_one_attempt_more(self, stage: Stage) -> None:
        stage.start("steps: [{ name: a, agent: x, action: do, retryPolicy: { maxRetries: 2, backoff: constant } }]")
        stage.fail("a").later(5).fail("a").later(5)
        assert stage.state == "executing"
        stage.fail("a")
        assert stage.state == "failed"

    def test_no_retries_is_one_attempt(self, stage: Stage) -> None:
        stage.start("steps: [{ name: a, agent: x, action: do, retryPolicy: { maxRetries: 0 } }]").fail("a", "transient")
        assert stage.state == "failed"


class TestOnFailure:
    """Section 3.3."""

    def test_abort_stops_the_whole_workflow(self, stage: Stage) -> None:
        stage.start("""
            steps:
              - { name: a, agent: x, action: do, onFailure: abort }
              - { name: b, agent: x, action: do, dependsOn: [a] }
              - { name: c, agent: x, action: do }
        """).claim("a", "c")
        stage.fail("a")
        assert stage.states("b") == ["pending", "cancelled"]
        stage.finish("c")
        assert stage.state == "failed", "what was in flight settled first"

    def test_skip_goes_on_with_the_next(self, stage: Stage) -> None:
        stage.start("""
            steps:
              - { name: a, agent: x, action: do, onFailure: skip }
              - { name: b, agent: x, action: do, dependsOn: [a] }
        """).fail("a")
        stage.finish("b")
        assert stage.state == "completed"

    def test_a_rejected_gate_lets_nothing_through_even_under_skip(self, stage: Stage) -> None:
        """ "If dependencies allow": a rejection satisfies none, so what follows is skipped, too (extension)."""
        stage.start(GATED % ("abort", "skip")).finish("build").reject()
        assert stage.states("ship") == ["pending", "skipped"]
        assert stage.extensions() == {("pending", "skipped")}
        assert stage.state == "completed"

    def test_compensate_undoes_all_completed_steps(self, stage: Stage) -> None:
        stage.start(CHAIN).finish("a", "b").fail("c")
        assert stage.ready() == {"undo:b"}
        stage.finish("undo:b", "undo:a")
        assert stage.state == "completed"

    def test_the_steps_own_policy_comes_first(self, stage: Stage) -> None:
        stage.start(GATED % ("compensate", "abort")).finish("build").reject()
        assert stage.state == "failed"

    def test_then_the_workflows(self, stage: Stage) -> None:
        stage.start(GATED % ("compensate", "abort")).finish("build").approve().fail("ship")
        assert stage.state == "compensating"

    def test_compensate_with_nothing_to_undo_has_failed(self, stage: Stage) -> None:
        stage.start(CHAIN).fail("a")
        assert stage.run()[-2:] == ["executing", "failed"]


class TestTimeouts:
    """Section 3.4."""

    @pytest.mark.parametrize(("policy", "ending"), [("abort", "failed"), ("skip", "completed")])
    def test_a_steps_timeout_fails_it_and_triggers_on_failure(self, stage: Stage, policy: str, ending: str) -> None:
        retry = "retryPolicy: { maxRetries: 5 }"
        stage.start(f"steps: [{{ name: a, agent: x, action: do, timeout: 5m, onFailure: {policy}, {retry} }}]")
        stage.time_out("a")
        assert stage.state == ending, "it is not retried"

    def test_and_compensation_too(self, stage: Stage) -> None:
        stage.start(CHAIN).finish("a").time_out("b").finish("undo:a")
        assert stage.run()[-3:] == ["executing", "compensating", "completed"]

    @pytest.mark.parametrize(("policy", "ending"), [("abort", "failed"), ("compensate", "compensating")])
    def test_the_workflows_timeout_triggers_the_failure_policy(self, stage: Stage, policy: str, ending: str) -> None:
        """The run's policy, not that of any step."""
        stage.start(f"""
            timeout: 30m
            failurePolicy: {policy}
            steps:
              - {{ name: a, agent: x, action: do, onFailure: skip }}
              - {{ name: b, agent: x, action: do, dependsOn: [a], onFailure: skip }}
            compensation: [{{ step: a, action: undo, agent: x }}]
        """)
        stage.finish("a").later(1801)
        assert stage.states("b") == ["pending", "cancelled"]
        assert stage.state == ending

    def test_it_overrides_a_steps_timeout(self, stage: Stage) -> None:
        stage.start("timeout: 30m\nsteps: [{ name: a, agent: x, action: do, timeout: 45m }]").claim("a")
        stage.later(1801)
        stage.later(31)  # the grace of what is in flight
        assert stage.states("a") == ["pending", "running", "cancelled"]
        assert stage.state == "failed"

    def test_waiting_for_people_counts_against_it(self, stage: Stage) -> None:
        stage.start('timeout: 1h\nsteps: [{ name: sign, agent: x, action: "GATE: well?" }]').later(HOUR - 1)
        assert stage.state == "blocked"
        stage.later(2)
        assert stage.run()[-2:] == ["blocked", "failed"]


class TestCompensation:
    """Section 4."""

    def test_it_runs_in_reverse_order_of_completion(self, stage: Stage) -> None:
        """4.1: A → B → C → D (fails): undo C, undo B, undo A."""
        stage.start(CHAIN).finish("a", "b", "c").fail("d")
        for name in ("undo:c", "undo:b", "undo:a"):
            assert stage.ready() == {name}
            stage.finish(name)
        assert [entry["step"] for entry in stage.view()["compensation"]] == ["c", "b", "a"]

    def test_it_is_completion_that_counts_not_the_order_of_the_file(self, stage: Stage) -> None:
        """4.2 rule 2."""
        stage.start("""
            failurePolicy: compensate
            steps:
              - { name: a, agent: x, action: do }
              - { name: b, agent: x, action: do }
              - { name: c, agent: x, action: do, dependsOn: [a, b] }
            compensation:
              - { step: a, action: undo, agent: x }
              - { step: b, action: undo, agent: x }
        """)
        stage.claim("a", "b")
        stage.finish("b", "a").fail("c")
        assert stage.ready() == {"undo:a"}
        stage.finish("undo:a")
        assert stage.ready() == {"undo:b"}

    def test_only_completed_steps_are_compensated(self, stage: Stage) -> None:
        """4.2 rule 1: not the failing one, not the pending, not the skipped."""
        stage.start("""
            failurePolicy: compensate
            steps:
              - { name: skipped, agent: x, action: do, onFailure: skip }
              - { name: done, agent: x, action: do }
              - { name: bad, agent: x, action: do, dependsOn: [skipped, done] }
              - { name: pending, agent: x, action: do, dependsOn: [bad] }
            compensation:
              - { step: skipped, action: undo, agent: x }
              - { step: done, action: undo, agent: x }
              - { step: bad, action: undo, agent: x }
              - { step: pending, action: undo, agent: x }
        """)
        stage.fail("skipped").finish("done").fail("bad").finish("undo:done")
        assert [entry["step"] for entry in stage.view()["compensation"]] == ["done"]
        assert stage.state == "completed"

    def test_a_compensation_has_one_key_over_all_its_attempts(self, stage: Stage) -> None:
        """4.2 rule 3: what an idempotent undo needs. The second try is the same hook again."""
        stage.start(CHAIN).finish("a").fail("b").fail("undo:a", "transient").later(2).finish("undo:a")
        [entry] = stage.view()["compensation"]
        assert entry["state"] == "completed"
        assert stage.state == "completed"

    def test_its_failure_stops_there_and_is_partial(self, stage: Stage) -> None:
        """4.2 rule 4: no further compensation; terminal failed with partial rollback."""
        stage.start(CHAIN).finish("a", "b", "c").fail("d").finish("undo:c").fail("undo:b", "validation")
        assert stage.ready() == set()
        view = stage.view()
        assert view["status"]["state"] == "failed"
        assert [(entry["step"], entry["state"]) for entry in view["compensation"]] == [
            ("c", "completed"),
            ("b", "failed"),
            ("a", "cancelled"),
        ]
        assert {"type": "RolledBack", "status": "False", "reason": "RollbackPartial"}.items() <= view["status"][
            "conditions"
        ][-1].items()

    def test_read_only_steps_need_none(self, stage: Stage) -> None:
        """4.2 rule 5: a step without an entry leaves the rollback whole."""
        stage.start("""
            failurePolicy: compensate
            steps:
              - { name: write, agent: x, action: do }
              - { name: read, agent: x, action: look, dependsOn: [write] }
              - { name: bad, agent: x, action: do, dependsOn: [read] }
            compensation: [{ step: write, action: undo, agent: x }]
        """)
        stage.finish("write", "read").fail("bad").finish("undo:write")
        assert stage.state == "completed"


class TestGraph:
    """Section 5.1."""

    DIAMOND = """
        steps:
          - { name: step-a, agent: x, action: do }
          - { name: step-b, agent: x, action: do, dependsOn: [step-a] }
          - { name: step-c, agent: x, action: do, dependsOn: [step-a] }
          - { name: step-d, agent: x, action: do, dependsOn: [step-b, step-c] }
    """

    def test_steps_with_the_same_dependencies_run_in_parallel_and_a_join_waits_for_both(self, stage: Stage) -> None:
        stage.start(self.DIAMOND)
        assert stage.ready() == {"step-a"}
        stage.finish("step-a")
        assert stage.ready() == {"step-b", "step-c"}
        stage.finish("step-c")
        assert stage.ready() == {"step-b"}
        stage.finish("step-b")
        assert stage.ready() == {"step-d"}
        stage.finish("step-d")
        assert stage.state == "completed"

    def test_steps_without_dependencies_start_immediately(self, stage: Stage) -> None:
        """Also where no step has any: this is no sequence."""
        stage.start("steps: [{ name: a, agent: x, action: do }, { name: b, agent: x, action: do }]")
        assert stage.ready() == {"a", "b"}

    def test_a_fan_in_runs_without_the_results_that_were_skipped(self, stage: Stage) -> None:
        stage.start(self.DIAMOND.replace("dependsOn: [step-a] }", "dependsOn: [step-a], onFailure: skip }"))
        stage.finish("step-a").fail("step-b").fail("step-c")
        assert stage.ready() == {"step-d"}


@pytest.mark.parametrize("ending", ["completed", "rolled back", "timed out at the gate"])
def test_a_workflow_from_start_to_end_on_both_databases(database_url: str, ending: str) -> None:
    with stage_on(database_url) as stage:
        stage.start(GATED % ("compensate", "compensate")).finish("build")
        assert stage.state == "blocked"
        if ending == "completed":
            stage.approve().finish("ship")
            assert stage.run()[-3:] == ["blocked", "executing", "completed"]
        else:
            (stage.reject() if ending == "rolled back" else stage.later(24 * HOUR + 1)).finish("undo:build")
            assert stage.run()[-2:] == ["compensating", "completed"]
            assert stage.view()["status"]["failedSteps"] == ["sign"]
