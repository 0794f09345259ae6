"""`stepkeep resume`: what is resumed, what is still paused, and names that are wrong."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli


def test_what_is_resumed_is_told_with_the_pauses_that_are_left(cli: Cli, home: Path) -> None:
    (home / "one.yaml").write_text("workflow: one\nsteps:\n  - {name: one, uses: nothing.here, queue: printers}\n")
    cli("publish", "one.yaml", "--handlers-elsewhere")
    for paused in (["--queue", "printers"], ["--all"]):
        assert cli("pause", *paused).status == 0
    resumed = cli("resume", "--queue", "printers")
    assert resumed.out.splitlines() == [
        "queue printers is not paused",
        "tenant default is still paused: stepkeep resume --all",
    ]
    assert cli("resume", "--all").out == "tenant default is not paused\n"
    mistyped = cli("resume", "--queue", "printer")
    assert (mistyped.status, "there is no queue 'printer'" in mistyped.err) == (1, True)
    nothing = cli("jobs", "start", "cancel")
    assert (nothing.status, "--workflow" in nothing.err) == (2, True)
