"""Translates CEL's messages: what is wrong, where, and what to write instead.

CEL uses the terms of its parser and the inner names of its operators. This is a table of translations; unknown messages
pass unchanged. `expressions` calls it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final

from stepkeep.definition.findings import Finding
from stepkeep.definition.text.document import nearest

FUNCTIONS: Final = (
    "all",
    "bool",
    "bytes",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "exists",
    "exists_one",
    "filter",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "has",
    "int",
    "map",
    "matches",
    "size",
    "startsWith",
    "string",
    "timestamp",
    "type",
    "uint",
)

_REPORT = re.compile(r"ERROR: <input>:(-?[0-9]+):(-?[0-9]+): ([^\n]*)")
_UNDECLARED = re.compile(r"undeclared reference to '(.+?)'")
_STATUS = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_OPERATOR = re.compile(r"[@_]*([^_@]+?)_?")

Said = tuple[str, str]

_SYNTAX: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Said]], ...]] = (
    (
        re.compile(r"(?:mismatched input|no viable alternative at input) '.*<EOF>'"),
        lambda found: ("The expression ends too early.", "Complete it."),
    ),
    (
        re.compile(r"missing '(.+)' at '<EOF>'"),
        lambda found: (f"`{found[1]}` is missing at the end.", "Add it."),
    ),
    (
        re.compile(r"missing '(.+)' at '(.+)'"),
        lambda found: (f"`{found[1]}` is missing before `{found[2]}`.", "Add it."),
    ),
    (
        re.compile(r"(?:mismatched|extraneous) input '(.+?)'"),
        lambda found: (f"`{found[1]}` is not expected here.", _about(found[1])),
    ),
    (
        re.compile(r"token recognition error at: '= ?'"),
        lambda found: ("`=` is not an operator.", "Compare with ==."),
    ),
    (
        re.compile(r"token recognition error at: '(.*)'"),
        lambda found: (f"`{found[1][:40]}` cannot be read.", "Close the quotes, or write an operator: && || ! == !="),
    ),
    (
        re.compile(r"no viable alternative at input '(.*)'"),
        lambda found: (f"`{found[1][-40:]}` cannot be read.", 'Write odd names in brackets: input["in"].'),
    ),
)

_CHECKS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Said]], ...]] = (
    (
        re.compile(r"found no matching overload for '(.+?)' applied to '\((.*)\)'"),
        lambda found: (f"{_called(found[1])} does not work on ({found[2]}).", _conversion(found[2])),
    ),
    (
        re.compile(r"expression of type '(.+)' cannot be the operand of a select operation"),
        lambda found: (f"A value of type {found[1]} has no fields.", ""),
    ),
    (
        # CEL's checker loses the type of `input["key"]` although it may be anything.
        re.compile(r"expression of type 'dyn' cannot be the range of a comprehension"),
        lambda found: ("What is read in brackets cannot be gone through like this.", "Write dyn(…) around it."),
    ),
    (
        re.compile(r"expression of type '(.+)' cannot be the range of a comprehension"),
        lambda found: (f"A value of type {found[1]} cannot be gone through.", "Use a list."),
    ),
    (
        re.compile(r"(.+)\(\) variable name must be a simple identifier"),
        lambda found: (f"The first argument of {found[1]}() names its items.", f"Write {found[1]}(item, …)."),
    ),
    (
        re.compile(r"has\(\) argument must be a field selection"),
        lambda found: ("has() asks for a field.", "Write has(input.field)."),
    ),
    (
        re.compile(r"unsupported syntax '(.+)'"),
        lambda found: (f"`{found[1]}` is not supported.", "Ask with has() first."),
    ),
    (
        re.compile(r"Maximum number of ERROR issues exceeded"),
        lambda found: ("There is more wrong with this than can be listed.", "Mend the first of it."),
    ),
    (
        re.compile(r"Exceeded max recursion depth|Expression recursion limit exceeded"),
        lambda found: ("This is nested or chained more than 32 levels deep.", "Split it up."),
    ),
)

_EVALUATION: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Said]], ...]] = (
    (
        re.compile(r"Key not found in map : (.+)"),
        lambda found: (f"there is no {found[1]}", "Ask with has() first."),
    ),
    (
        re.compile(r"No matching overloads found : (_&&_|_\|\|_|<jump_condition>|!_)"),
        lambda found: ("a condition in it is neither true nor false", ""),
    ),
    (
        re.compile(r"No matching overloads found : (.+?)\((.*)\)"),
        lambda found: (f"{_called(found[1])} does not work on ({_types(found[2])})", _conversion(_types(found[2]))),
    ),
    (
        re.compile(r"Applying SELECT to non-message type"),
        lambda found: ("a field is read from something that has no fields", "Ask with has() first."),
    ),
    (
        re.compile(r"Index error: index=(-?[0-9]+) size=([0-9]+)"),
        lambda found: (f"there is no item {found[1]} in a list of {found[2]}", "Ask with size() first."),
    ),
    (
        re.compile(r'No value with name "(.+)" found'),
        lambda found: (f"there is no `{found[1]}` here", ""),
    ),
    (
        re.compile(r"Integer value '.*' out of range"),
        lambda found: ("a number that it reads does not fit in 64 bits", ""),
    ),
    (
        re.compile(r"Invalid map key type: '(.+)'"),
        lambda found: (f"a value of type {found[1]} cannot be the key of a map", "Convert with string()."),
    ),
    (
        re.compile(r"Iteration budget exceeded"),
        lambda found: ("its loops go through more than 10000 items", "Do it in a step."),
    ),
)


def compile_findings(said: str, source: str, functions: Collection[str] = ()) -> list[Finding]:
    """What CEL's compiler refused, in our words and with offsets into the source.

    It calls variables and functions alike undeclared; `functions` are the names that are called in the expression,
    and the others are left out.
    """
    reports = _REPORT.findall(said) or [("1", "1", _STATUS.sub("", said.split("\n")[0]))]
    syntax = [report for report in reports if report[2].startswith("Syntax error: ")]
    # After the first syntax error the parser guesses, and later messages are about its guesses.
    findings = []
    for line, column, words in syntax[:1] or reports:
        offset = _offset(int(line), int(column), source)
        unknown = _UNDECLARED.match(words)
        if unknown is None:
            findings.append(_finding(offset, words.removeprefix("Syntax error: ")))
        elif unknown[1] in functions:
            findings.append(_no_function(offset, unknown[1], source))
    return list(dict.fromkeys(findings))


def evaluation_words(said: str) -> Said:
    """What CEL returned instead of a value, and what to do about it."""
    plain = _STATUS.sub("", _STATUS.sub("", said))
    return _translated(plain, _EVALUATION) or (plain[:200], "")


def _offset(line: int, column: int, source: str) -> int:
    before = sum(len(text) + 1 for text in source.split("\n")[: max(line, 1) - 1])
    return min(before + max(column, 1) - 1, len(source))


def _finding(offset: int, said: str) -> Finding:
    message, hint = _translated(said, _SYNTAX + _CHECKS) or (f"{said[:1].upper()}{said[1:200]}.", "")
    return Finding((), message, hint, inside=offset)


def _no_function(offset: int, name: str, source: str) -> Finding:
    # CEL points at the parenthesis.
    start = offset - len(name) if source[:offset].endswith(name) else offset
    if name in FUNCTIONS:
        return Finding((), f"{name}() is called with the wrong number of arguments.", inside=start)
    closest = nearest(name, FUNCTIONS)
    hint = f"Did you mean {closest}()?" if closest else "Only CEL's standard functions are there."
    return Finding((), f"There is no function `{name}`.", hint, inside=start)


def _translated(said: str, table: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Said]], ...]) -> Said | None:
    for pattern, words in table:
        found = pattern.search(said)
        if found:
            return words(found)
    return None


def _about(token: str) -> str:
    if token in {"and", "or", "not"}:
        return "Write && for and, || for or, ! for not."
    return "Remove it, or write an operator before it."


def _called(function: str) -> str:
    if function == "_?_:_":
        return "`? :`"
    if function == "_[_]":
        return "`[ ]`"
    operator = _OPERATOR.fullmatch(function)
    symbol = operator[1] if operator else function
    return f"`{symbol}`" if not symbol[:1].isalpha() or symbol == "in" else f"{function}()"


def _types(names: str) -> str:
    return names.replace("int64", "int").replace("uint64", "uint")


def _conversion(types: str) -> str:
    kinds = {kind.strip() for kind in types.split(",")}
    if kinds <= {"int", "double", "uint"} and len(kinds) > 1:
        return "Whole numbers and decimals do not mix: write 1.0 for 1, or convert with double() or int()."
    if "string" in kinds and len(kinds) > 1:
        return "Convert with string(), int() or double() first."
    return ""
