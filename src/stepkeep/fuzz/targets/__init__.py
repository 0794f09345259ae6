"""The targets that there are, by name: where each is found. A target is one file and is imported when it is played."""

from __future__ import annotations

TARGETS = {
    "definitions": "stepkeep.fuzz.targets.definitions:Definitions",
    "expressions": "stepkeep.fuzz.targets.expressions:Expressions",
    "handlers": "stepkeep.fuzz.targets.handlers:Handlers",
    "api": "stepkeep.fuzz.targets.api:Api",
    "logs": "stepkeep.fuzz.targets.logs:Logs",
    "databases": "stepkeep.fuzz.targets.databases:Databases",
    "terminal": "stepkeep.fuzz.targets.terminal:Terminal",
}
