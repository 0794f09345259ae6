"""`stepkeep prune` as people and timers use it, and `log verify` on what it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import HANDLERS, Cli


def finished(cli: Cli, count: int = 1) -> list[str]:
    return [cli("run", "flow.yaml", "--app", HANDLERS, "--json").json["run"]["id"] for _ in range(count)]


def test_prune_archives_deletes_and_says_what_it_did(cli: Cli, home: Path) -> None:
    finished(cli, 2)
    said = cli("prune", "--keep", "0", "--archive", "old")
    assert said.status == 0
    [manifest] = home.glob("old/*.manifest.json")
    assert said.out == f"old/{manifest.name}\n2 runs archived, 2 deleted\n"
    assert cli("runs", "--json").json["runs"] == []
    finished(cli)
    assert "1 run archived, 1 deleted" in cli("prune", "--keep", "0", "--archive", "old").out


def test_prune_answers_programs_with_one_object(cli: Cli) -> None:
    finished(cli, 3)
    assert cli("prune", "--keep", "1", "--dry-run", "--json").json["prune"]["found"] == 2
    said = cli("prune", "--keep", "1", "--archive", "old", "--json").json["prune"]
    assert (said["found"], said["archived"], said["deleted"], said["keys"], said["flawed"]) == (2, 2, 2, 0, [])
    assert len(said["archives"]) == 1
    assert said["dry_run"] is False


def test_log_verify_judges_an_archive_by_its_manifest_and_a_packed_log_alone(cli: Cli, home: Path) -> None:
    finished(cli, 2)
    cli("prune", "--keep", "0", "--archive", "old")
    [manifest], [log] = home.glob("old/*.manifest.json"), home.glob("old/*.log.jsonl.gz")
    for file in (manifest, log):
        said = cli("log", "verify", str(file))
        assert said.status == 0
        assert "2 journals, no findings" in said.out
    log.write_bytes(log.read_bytes()[:-30])
    for file in (manifest, log):
        said = cli("log", "verify", str(file))
        assert said.status == 1
        assert "archive: " in said.out
    assert cli("log", "verify", str(manifest), "--as", "run").status == 2
    assert cli("log", "verify", "old/none.manifest.json").status == 2


def test_a_start_that_is_repeated_after_its_run_is_gone_is_told_so(cli: Cli) -> None:
    [run] = [cli("start", "flow.yaml", "--idempotency-key", "once", "--json").json]
    cli("run", "--resume", run["run"]["id"], "--app", HANDLERS)
    cli("prune", "--keep", "0", "--archive", "old")
    said = cli("start", "flow.yaml", "--idempotency-key", "once")
    assert run["run"]["id"] in said.out + said.err
    assert "gone" in said.out + said.err


REFUSED = {
    "no limit at all": (["prune", "--archive", "old"], "which finished runs go"),
    "no word about archives": (["prune", "--keep", "1"], "--archive DIR"),
    "both words about archives": (["prune", "--keep", "1", "--archive", "old", "--no-archive"], "--archive DIR"),
    "no duration": (["prune", "--older-than", "30", "--no-archive"], "30 has no unit"),
    "a negative number": (["prune", "--keep", "-1", "--no-archive"], "--keep"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_meant_is_refused_with_a_word_on_what_to_do(cli: Cli, home: Path, kind: str) -> None:
    finished(cli)
    arguments, word = REFUSED[kind]
    said = cli(*arguments)
    assert said.status == 2
    assert word in said.err
    assert len(cli("runs", "--json").json["runs"]) == 1
    assert not (home / "old").exists()
