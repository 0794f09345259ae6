"""The corpus of forgeries: its kinds, its true logs, and the share that the judge finds."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from stepkeep.cli.main import main
from stepkeep.conformance.encoding import compact
from stepkeep_lab.forgeries.added import ADDED_STORIES, CALL_STORIES, FLOW, THEN
from stepkeep_lab.forgeries.campaign import Corpus, differences, findings_in, forge_all
from stepkeep_lab.forgeries.kinds import all_kinds
from stepkeep_lab.forgeries.material import CANONICAL, TrueLog, grown_logs, true_logs
from stepkeep_lab.forgeries.seals import resealed
from stepkeep_lab.forgeries.undetectable import CLASSES, class_of

WORDS = {CANONICAL, "ioa", "run", "linear", "action", "workstream"}


@pytest.fixture(scope="module")
def logs() -> list[TrueLog]:
    return [log for log in true_logs(range(4)) if len(log.lines) < 60]


@pytest.fixture(scope="module")
def corpus(logs: list[TrueLog]) -> Corpus:
    return forge_all(logs, tries=1, nth=15)


@pytest.mark.parametrize(
    ("about", "seeds", "stories"), [(THEN, (1, 2, 3), ADDED_STORIES), (FLOW, (4,), CALL_STORIES)], ids=(THEN, FLOW)
)
def test_every_forgery_of_steps_that_only_the_log_tells_of_is_found(
    about: str, seeds: tuple[int, ...], stories: list[Any]
) -> None:
    found = forge_all([log for log in grown_logs(seeds, about) if len(log.lines) < 130], tries=2)
    assert found.accused == []
    assert {kind.words for kind in found.kinds} == WORDS
    assert {kind.name for kind in found.kinds if kind.words == CANONICAL} == {name for name, _, _ in stories}
    assert [(kind.words, kind.name) for kind in found.kinds if not kind.ok] == []
    canonical = [kind for kind in found.kinds if kind.words == CANONICAL]
    assert [(kind.name, kind.tried, kind.found) for kind in canonical if kind.found < kind.tried] == []


def test_there_are_more_than_300_kinds_over_all_dialects() -> None:
    kinds = all_kinds()
    assert len({(kind.words, kind.name) for kind in kinds}) == len(kinds) > 300
    assert {kind.words for kind in kinds} == WORDS


def test_true_logs_give_no_finding_and_recomputing_their_chain_changes_nothing(logs: list[TrueLog]) -> None:
    assert {log.words for log in logs} == WORDS
    for log in logs:
        assert findings_in(log.words, log.lines) == ()
        true = [compact(line) for line in log.parsed()]
        assert [compact(line) for line in resealed(log.parsed(), canonical=log.words == CANONICAL)] == true


def test_an_attempt_in_doubt_after_a_wait_is_no_finding_where_claims_are_hidden() -> None:
    """Seed 912: the dialect hides the wait and both claims; the doubt tells that a handler ran."""
    logs = [log for log in true_logs([912], in_all_words=True) if log.words in ("ioa", "action")]
    assert any(b"IN_DOUBT" in raw for log in logs for raw in log.lines)
    assert [found for log in logs for found in findings_in(log.words, log.lines)] == []


@pytest.mark.parametrize("seed", [32, 43], ids=["a call in doubt after hidden claims", "adopted before a slot"])
def test_what_a_dialect_hides_of_a_flow_is_no_finding(seed: int) -> None:
    assert [found for log in grown_logs([seed], FLOW) for found in findings_in(log.words, log.lines)] == []


def test_every_forgery_without_a_recomputed_chain_is_found(corpus: Corpus) -> None:
    missed = [(kind.words, kind.name) for kind in corpus.kinds if kind.unchained_found < kind.unchained]
    assert missed == []
    assert len(corpus.kinds) > 20


def test_every_kind_with_a_recomputed_chain_is_found_or_listed(corpus: Corpus) -> None:
    told = corpus.as_json()
    assert {"name", "words", "what", "tried", "found", "undetectable"} <= set(told["kinds"][0])
    assert {(kind.words, kind.name) for kind in corpus.kinds if not kind.ok} == set()


def test_a_log_in_the_words_of_its_own_dialect_shows_most_forgeries_alone(corpus: Corpus) -> None:
    told = [kind for kind in corpus.kinds if kind.words != CANONICAL]
    assert sum(kind.found for kind in told) > 0.9 * sum(kind.tried for kind in told)


def test_every_forgery_in_the_words_of_a_dialect_is_found_beside_the_canonical_log(logs: list[TrueLog]) -> None:
    random = Random(7)
    for log in (log for log in logs[:20] if log.words != CANONICAL):
        assert differences(log.words, log.lines, log.journal) == ()
        for name in ("other_actor", "step.metadata.error", "run.metadata.actor", "step.metadata.hop"):
            kind = next((kind for kind in all_kinds() if (kind.words, kind.name) == (log.words, name)), None)
            forged = None if kind is None else kind.forge(log.parsed(), random)
            if forged is not None and forged != log.parsed():
                assert differences(log.words, [compact(line) for line in forged], log.journal), (log.words, name)


def test_a_dialect_log_without_the_definition_that_its_run_names_is_found(logs: list[TrueLog]) -> None:
    for words in sorted(WORDS - {CANONICAL}):
        log = next(log for log in logs if log.words == words)
        lines = [compact(line) for line in resealed(log.parsed()[1:], canonical=False)]
        assert any("definition that this log must begin with" in found for found in findings_in(words, lines)), words


def test_every_undetectable_class_is_in_the_documentation_with_its_reason() -> None:
    page = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text(encoding="utf-8")
    rows = [row.split("|") for row in page.splitlines() if row.startswith("|")]
    documented = {(cells[1].strip(), cells[2].strip()) for cells in rows if len(cells) == 4}
    assert {(one.what, one.reason) for one in CLASSES} <= documented
    names = {kind.name for kind in all_kinds()}
    assert {name for one in CLASSES for name in one.kinds} <= names


def test_only_a_change_of_the_class_is_excused(logs: list[TrueLog]) -> None:
    log = next(log for log in logs if log.words == CANONICAL and any(b'"retry_scheduled"' in raw for raw in log.lines))
    for trigger, excused in (("claimed", "lease"), ("retry_scheduled", None)):
        forged = log.parsed()
        line = next(line for line in forged if line["trigger"] == trigger)
        line["metadata"]["due_at"] += 1
        assert class_of("step.metadata.due_at", log.parsed(), forged) == excused


def _changed(log: TrueLog, kind: str, change: Callable[[dict[str, Any]], bool]) -> list[str]:
    """What the judge finds after the first line that `change` accepts was changed, with the chain recomputed."""
    forged = log.parsed()
    assert any(change(line) for line in forged), kind
    return list(findings_in(log.words, [compact(line) for line in resealed(forged, canonical=False)]))


def test_a_run_does_not_wait_before_it_has_begun() -> None:
    def wait(line: dict[str, Any]) -> bool:
        is_start = line["metadata"].get("because") == "progressed" and line["to_state"] == "Running"
        line["metadata"] |= {"because": "waiting"} if is_start else {}
        return is_start

    log = next(
        log for log in true_logs(range(100, 105)) if log.words == "action" and b'"progressed"' in b"".join(log.lines)
    )
    assert any("after it has begun" in found for found in _changed(log, "waiting", wait))


def test_a_wait_does_not_carry_the_detail_of_a_message() -> None:
    """ioa shows a wait on the line of the run only, where no gate has blocked the run before."""

    def tell(line: dict[str, Any]) -> bool:
        waits = line["metadata"].get("because") == "waited" and "of" in line["metadata"]
        line["metadata"] |= {"detail": {"id": "m18", "name": "shipped"}} if waits else {}
        return waits

    logs = true_logs(range(911, 941))
    log = next(log for log in logs if log.words == "ioa" and b'"waited"' in b"".join(log.lines))
    assert any("'waited' comes with one" in found for found in _changed(log, "detail", tell))


def test_a_run_that_waits_has_the_cause_of_the_hop_that_led_to_it() -> None:
    """Seed 46000 and after: another worker reports that the gate was reached."""

    def blame(line: dict[str, Any]) -> bool:
        said = line["metadata"]
        is_wait = said.get("because") == "waiting" and said.get("event") == "step_reported"
        said |= {"actor": "w9.9:9"} if is_wait else {}
        return is_wait

    log = next(
        log
        for log in true_logs(range(46000, 46006))
        if log.words == "run" and any(b'"waiting"' in raw and b'"step_reported"' in raw for raw in log.lines)
    )
    assert any("the hop before it led to this one" in found for found in _changed(log, "actor", blame))


def test_the_time_of_a_sweep_is_excused_between_its_timer_and_the_line_after_it() -> None:
    def line(event: str, because: str, at: int, **said: Any) -> dict[str, Any]:
        return {"trigger": because, "timestamp": "", "metadata": {"event": event, "at": at, "step": "a", **said}}

    true = [
        line("step_claimed", "claimed", 10, due_at=90),
        line("step_reported", "retry_scheduled", 20, due_at=50),
        line("time_came", "retry_due", 60),
        line("step_claimed", "claimed", 70, due_at=99),
    ]
    for place, at, excused in ((2, 50, "time"), (2, 70, "time"), (2, 49, None), (2, 71, None), (1, 30, None)):
        forged = deepcopy(true)
        forged[place]["metadata"]["at"] = at
        assert class_of("step.metadata.at", true, forged) == excused, (place, at)


def test_a_wish_for_compensation_is_excused_before_the_start_and_while_the_run_stops() -> None:
    def cancel(trigger: str, **said: Any) -> dict[str, Any]:
        return {"trigger": trigger, "metadata": {"event": "cancel_requested", "seq": 2, **said}}

    created = {"trigger": "created", "metadata": {"event": "run_created", "seq": 1}}
    claimed = {"trigger": "claimed", "metadata": {"event": "step_claimed", "seq": 1, "step": "a"}}
    wish = {"detail": {"compensate": False}}
    stories: list[tuple[list[dict[str, Any]], str | None]] = [
        ([created, cancel("cancelled", **wish)], "cancel"),
        ([created, claimed, cancel("cancelled", **wish)], None),
        ([created, claimed, cancel("cancelled", step="a", duration_seconds=1.0, **wish)], "cancel"),
        ([created, claimed, cancel("cancelled", step="a", duration_seconds=1.0, **wish), cancel("cancelled")], None),
    ]
    for true, excused in stories:
        forged = deepcopy(true)
        next(line for line in forged if "detail" in line["metadata"])["metadata"]["detail"]["compensate"] = True
        assert class_of("run.metadata.detail", true, forged) == excused


def test_a_run_is_started_once() -> None:
    """Seed 904: the line of a decision claims the start of the run as its event."""

    def start(line: dict[str, Any]) -> bool:
        is_decision = "of" in line["metadata"] and line["metadata"].get("event") == "gate_decided"
        line["metadata"] |= {"event": "run_started"} if is_decision else {}
        return is_decision

    log = next(log for log in true_logs([904]) if log.words == "run" and b'"gate_decided"' in b"".join(log.lines))
    assert any("the run was started in entry" in found for found in _changed(log, "event", start))


def test_the_command_reports_and_writes_what_was_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["lab", "forgeries", "--seeds", "1", "--tries", "0", "--json", "--report", str(tmp_path)])
    told = json.loads(capsys.readouterr().out)["forgeries"]
    assert told["logs"] > 0
    assert told["accused"] == []
    assert told["logs"] == 6 * told["runs"], "each run in canonical names and in five dialects"
    written = json.loads((tmp_path / "true-logs.json").read_text())
    assert written["logs"] == told["logs"]
    assert written["command"] == "stepkeep lab forgeries --from 0 --seeds 1 --tries 0"
    assert f"{told['logs']:,} true logs" in (tmp_path / "true-logs.md").read_text(encoding="utf-8")
