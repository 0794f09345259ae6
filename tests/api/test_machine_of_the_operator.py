"""No key of a tenant makes a worker run or write something on its machine, unless the operator lets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

import stepkeep as sk
from stepkeep.operations.logs.run_archive import ArchiveSweeper
from stepkeep.worker.chores.archives import verified
from tests.api.stage import TENANT, on, told
from tests.remote.test_remote_worker import on_service, registry, working

KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "jsonl": ({"path": "/tmp/stepkeep-never.jsonl"}, "writes to the disk of a worker"),
    "command": ({"argv": ["true"]}, "runs a program on the machine of a worker"),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_sink_that_runs_or_writes_something_is_the_operators_alone(database_url: str, kind: str) -> None:
    options, does = KINDS[kind]

    def refused(answer: httpx2.Response) -> None:
        problem = told(answer, 403, "not_allowed")
        assert problem["rule"] == "operator_only"
        assert f"a sink of kind {kind} {does}" in problem["detail"]

    async with on(database_url) as stage, stage.client(await stage.key()) as client:
        refused(await client.post("/sinks", json={"name": "mine", "kind": kind, "options": options}))
        refused(await client.put("/sinks/mine", json={"kind": kind, "options": options}))
        async with stage.host() as host:
            await host.sinks.add("theirs", kind, options=options)
        refused(await client.put("/sinks/theirs", json={"kind": "host"}))
        refused(await client.delete("/sinks/theirs"))
        refused(await client.delete("/sinks/theirs", params={"discard": True, "reason": "away with it"}))
        refused(await client.post("/sinks/theirs/test"))
        listed = (await client.get("/sinks")).json()["sinks"]
        assert [(one["name"], one["kind"]) for one in listed] == [("theirs", kind)]
        assert (await client.put("/sinks/own", json={"kind": "host"})).status_code == 200
        assert (await client.delete("/sinks/own")).status_code == 200
        async with stage.host() as host:
            await host.sinks.add("theirs", "host", replace=True)
        assert (await client.delete("/sinks/theirs")).status_code == 200


# -- remote workers ----------------------------------------------------------------------------------------------------
async def test_a_remote_worker_runs_commands_only_of_a_tenant_that_its_operator_allows(
    database_url: str, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    touching = sk.Workflow("touching")
    touching.command("touch", ["touch", str(mark)])
    plain = sk.Workflow("plain")
    plain.step("double", "remote.double", inputs={"n": 1})

    async with on_service(database_url) as (stage, url, client):
        await stage.publish(touching, plain)
        key = await stage.key("work", owner="bob")
        run = (await client.post("/runs", json={"workflow": "touching"})).json()["run_id"]
        for commands in (None, sk.CommandPolicy(tenants=("rival",))):
            async with working(url, key, registry(), app="far", commands=commands) as worker:
                other = (await client.post("/runs", json={"workflow": "plain"})).json()["run_id"]
                found = (await client.get(f"/runs/{other}/result", params={"wait": 30})).json()
                assert found["state"] == "succeeded", found
                assert worker.kinds == ("http", "rules")
                assert not mark.exists()
        async with working(url, key, registry(), app="far", commands=sk.CommandPolicy(tenants=(TENANT,))):
            found = (await client.get(f"/runs/{run}/result", params={"wait": 30})).json()
            assert found["state"] == "succeeded", found
        assert mark.exists()


# -- names and folders -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["../up", "..", ".", "a/b", "/etc/x", "a\0b", ".hidden", "a\nb", "-rf", "", "~root"])
async def test_no_name_that_becomes_a_file_leaves_its_folder(name: str, tmp_path: Path) -> None:
    documents: list[dict[str, Any]] = [
        {"workflow": name, "timeout": "1m", "steps": [{"name": "a", "command": ["true"]}]},
        {"workflow": "flow", "timeout": "1m", "steps": [{"name": name, "command": ["true"]}]},
        {"workstream_id": name, "tasks": [{"task_id": "a", "command": "true"}]},
        {"workstream_id": "ws", "tasks": [{"task_id": name, "command": "true"}]},
    ]

    async with on(f"sqlite:///{tmp_path}/test.db") as stage, stage.client(await stage.key()) as client:
        for document in documents:
            told(await client.post("/workflows", json=document), 422, "definition")


@pytest.mark.parametrize("how", ["absolute", "parents", "link", "deep link"])
async def test_an_archive_that_a_definition_declares_stays_below_the_folder_of_the_operator(
    database_url: str, tmp_path: Path, how: str
) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    (outside / "flow").mkdir(parents=True)
    (home / "link").symlink_to(outside)
    (home / "deep").mkdir()
    (home / "deep" / "flow").symlink_to(outside / "flow")
    to = {"absolute": str(outside), "parents": "../outside", "link": "link", "deep link": "deep"}[how]
    flow = {
        "workflow": "flow",
        "timeout": "1m",
        "archive": {"to": to},
        "steps": [{"name": "greet", "uses": "api.greet"}],
    }

    async def look(host: sk.AsyncEngine, run: str) -> None:
        def sweeper(base: Path) -> ArchiveSweeper:
            return ArchiveSweeper(host.transactor, tenant=TENANT, verify=verified, base=base)

        careful = sweeper(home)
        swept = await careful.sweep()
        assert swept.bundles == ()
        [(named, why)] = swept.problems
        assert named == run
        assert f"is not below {home}. To allow it, give --archive-root DIR." in why
        assert list((outside / "flow").iterdir()) == []
        assert (await careful.sweep()).problems == (), "told once"
        if how == "absolute":
            [made] = (await sweeper(tmp_path).sweep()).bundles
            assert made.folder == str(outside / "flow" / run)

    async with on(database_url) as stage:
        async with stage.client(await stage.key()) as client:
            assert (await client.post("/workflows", json=flow)).status_code == 201
            run = (await client.post("/runs", json={"workflow": "flow"})).json()["run_id"]
        async with stage.host() as host:
            await host.work_on(run)
            await look(host, run)
