"""Makes pictures of the web pages in docs/images: a service on a temporary database, runs of the tour, a real browser.

Run it after a change of the pages: `python scripts/page_screenshots.py`. It needs playwright and Chromium, by
`STEPKEEP_TEST_CHROMIUM` or PATH. `--all` makes every page at desktop and phone size, light and dark; without it, those
that the docs show.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import httpx2
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[1]
SIZES: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 780}, "is_mobile": True, "has_touch": True},
}
PAGES = (
    "runs",
    "approvals",
    "overview",
    "errors",
    "workflows",
    "workflows/tour",
    "editor",
    "workers",
    "jobs",
    "triggers",
    "outbox",
    "hooks",
    "policies",
    "keys",
    "users",
    "audit",
)
SHOWN = (("runs", "desktop", "light"), ("run", "desktop", "dark"), ("approvals", "phone", "light"))
"""What README and docs show: page, size, theme."""
WAITS = 20.0
PRINTED = """
workflow: labels
timeout: 1h
steps:
  - { name: print, uses: tour.ship, timeout: 1m, queue: printers }
"""


def call(service: dict[str, Any], method: str, path: str, body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {service['key']}"}
    answer = httpx2.request(method, service["address"] + path, json=body, headers=headers, timeout=60)
    answer.raise_for_status()
    return answer.json()


def first_answer(stream: IO[str]) -> dict[str, Any]:
    """The object that `stepkeep dev --json` prints once it serves."""
    text = ""
    for line in stream:
        text += line
        if line == "}\n":
            return dict(json.loads(text)["service"])
    sys.exit(f"stepkeep dev does not serve: {text}")


def settle(service: dict[str, Any], run: str) -> None:
    call(service, "GET", f"/runs/{run}/result?wait=30&until_blocked=true")


def play(service: dict[str, Any]) -> str:
    """Some runs of the tour in different states; the one that was rolled back."""
    customers = ("Grace", "Edsger", "Barbara", "Alan", "Radia", "Donald")
    runs = [
        call(
            service,
            "POST",
            "/runs",
            {
                "workflow": "tour",
                "input": {"customer": one},
                "labels": {"customer": one},
                "business_key": f"order-{at + 1041}",
            },
        )["run_id"]
        for at, one in enumerate(customers)
    ]
    for run in runs:
        settle(service, run)
    for run in runs[:2]:
        call(service, "POST", f"/runs/{run}/approve", {"comment": "checked"})
    call(service, "POST", f"/runs/{runs[2]}/reject", {"comment": "not today"})
    call(service, "POST", f"/runs/{runs[3]}/cancel", {"compensate": True, "reason": "ordered twice"})
    for run in runs[:4]:
        call(service, "GET", f"/runs/{run}/result?wait=30")
    furnish(service)
    return str(runs[0])


def furnish(service: dict[str, Any]) -> None:
    """Something to see on the pages of administration."""
    sink = {"kind": "message", "on": ["*"], "events": ["endings"]}
    call(service, "PUT", "/sinks/shop", sink | {"options": {"key": "{run_id}" * 8, "name": "ended"}})
    rules = [{"name": "large", "steps": ["pay*"], "then": "hold", "reason": "Large payouts need finance."}]
    call(service, "POST", "/policies", {"policy": {"policy": "house rules", "rules": rules}})
    for name in ("grace", "edsger"):
        call(service, "POST", "/users", {"name": name, "display": name.title()})
    call(service, "POST", "/api-keys", {"owner": "grace", "scopes": ["read", "decide"]})
    for name, schedule in (("nightly", "30 2 * * *"), ("hourly", "@hourly")):
        given = {"name": name, "workflow": "tour", "trigger": {"schedule": schedule, "zone": "Europe/Zurich"}}
        call(service, "POST", "/triggers", given)
    run = call(service, "POST", "/runs", {"workflow": "tour", "input": {"customer": "Ada"}})["run_id"]
    settle(service, run)
    call(service, "POST", f"/runs/{run}/cancel", {"reason": "only to see its event"})
    named = [call(service, "POST", "/runs", {"workflow": "tour", "input": {"customer": "Ada"}})["run_id"] for _ in "ab"]
    for run in named:
        settle(service, run)
    job = {"action": "cancel", "where": {"text": "Ada"}, "reason": "ordered twice"}
    call(service, "POST", "/runs/bulk", job)
    for run in named:
        call(service, "GET", f"/runs/{run}/result?wait=30")
    headers = {"Authorization": f"Bearer {service['key']}", "Content-Type": "application/yaml"}
    httpx2.post(f"{service['address']}/workflows", content=PRINTED, headers=headers).raise_for_status()
    call(service, "POST", "/pauses/queue", {"queue": "printers", "reason": "Out of paper until noon."})


def shoot(page: Page, to: Path) -> None:
    page.locator("main h1").first.wait_for()
    ends = time.monotonic() + WAITS
    while page.locator("main .skeleton").count() and time.monotonic() < ends:
        page.wait_for_timeout(50)
    page.wait_for_timeout(700)
    page.screenshot(path=to)
    sys.stdout.write(f"{to.relative_to(ROOT) if to.is_relative_to(ROOT) else to}\n")


def pictures(browser: Browser, service: dict[str, Any], run: str, folder: Path, everything: bool) -> None:
    paths = {name.replace("/", "-"): f"/ui/{name}" for name in PAGES} | {"run": f"/ui/runs/{run}?step=check-address"}
    paths |= {f"run-{tab}": f"/ui/runs/{run}?tab={tab}" for tab in ("steps", "data", "journal", "record")}
    paths |= {f"workflow-{tab}": f"/ui/workflows/tour?tab={tab}" for tab in ("findings", "paths", "definition")}
    wanted = (
        [(name, size, theme) for name in paths for size in SIZES for theme in ("light", "dark")]
        if everything
        else SHOWN
    )
    for size in SIZES:
        for theme in ("light", "dark"):
            mine = [name for name, in_size, in_theme in wanted if (in_size, in_theme) == (size, theme)]
            if not mine:
                continue
            context = browser.new_context(base_url=service["address"], color_scheme=theme, **SIZES[size])
            page = context.new_page()
            page.goto("/ui")
            page.get_by_label("API key").fill(service["key"])
            page.get_by_role("button", name="Sign in").click()
            page.get_by_role("navigation", name="Pages").wait_for()
            for name in mine:
                page.goto(paths[name])
                shoot(page, folder / f"{name}-{size}-{theme}.png")
            context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every page, size and theme")
    parser.add_argument("--to", default=str(ROOT / "docs" / "images"), help="the folder")
    given = parser.parse_args()
    folder = Path(given.to).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    program = os.environ.get("STEPKEEP_TEST_CHROMIUM") or shutil.which("chromium")
    if program is None:
        sys.exit("There is no chromium here. Install it, or set STEPKEEP_TEST_CHROMIUM to its path.")
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "stepkeep", "dev", "--port", "0", "--json"]
        child = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout is not None
            service = first_answer(child.stdout)
            run = play(service)
            arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=program, args=arguments)
                pictures(browser, service, run, folder, given.all)
                browser.close()
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(60)


if __name__ == "__main__":
    main()
