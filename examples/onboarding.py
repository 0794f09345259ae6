"""The onboarding workflow of `onboarding.yaml`, written in Python. Run it with `python examples/onboarding.py`."""

from __future__ import annotations

from handlers import create_account, deactivate_account, provision_workspace, release_workspace, send_mail

import stepkeep as sk

onboarding = sk.Workflow("customer-onboarding-py", version=1, timeout="26h", on_failure="compensate")

account = onboarding.step(
    "create-account",
    create_account,
    inputs={"email": "${{ input.email }}"},
    retry=sk.Retry(max_attempts=5),
    undo=deactivate_account,
)
workspace = onboarding.step(
    "provision-workspace",
    provision_workspace,
    after=account,
    inputs={"account_id": '${{ steps["create-account"].output.account_id }}'},
    undo=release_workspace,
)
onboarding.step(
    "send-welcome",
    send_mail,
    after=workspace,
    inputs={"to": "${{ input.email }}", "subject": "Welcome"},
    on_failure="skip",
)

if __name__ == "__main__":
    with sk.open("sqlite:///.stepkeep/onboarding.db") as engine:
        print(engine.run(onboarding, input={"email": "ada@example.com"}))  # noqa: T201
