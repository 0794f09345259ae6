"""The targets that there are, by name: where each is found. A target is one file and is imported when it is played."""

from __future__ import annotations

TARGETS = {
    "definitions": "stepkeep_lab.fuzz.targets.definitions:Definitions",
    "expressions": "stepkeep_lab.fuzz.targets.expressions:Expressions",
    "handlers": "stepkeep_lab.fuzz.targets.handlers:Handlers",
    "api": "stepkeep_lab.fuzz.targets.api:Api",
    "logs": "stepkeep_lab.fuzz.targets.logs:Logs",
    "databases": "stepkeep_lab.fuzz.targets.databases:Databases",
    "terminal": "stepkeep_lab.fuzz.targets.terminal:Terminal",
    "signatures": "stepkeep_lab.fuzz.targets.signatures:Signatures",
    "addresses": "stepkeep_lab.fuzz.targets.addresses:Addresses",
}
