"""Writes the documents that users and operators meet, from the program itself, without what differs each time.

Schemas, OpenAPI with references resolved, help of every command, public Python names, metrics, grants, state tables and
the JSON Schema of definitions. `commands.py` adds the answers of commands. Nothing is compared here.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stepkeep_lab.golden.commands import answers, program
from stepkeep_lab.postgres import PostgresServer


def documents() -> Iterator[tuple[str, str]]:
    """Each document with the name of its file."""
    for name, write in DOCUMENTS.items():
        yield name, write()


def _sqlite_schema() -> str:
    import apsw

    from stepkeep.store.sqlite.store import SqliteStore

    async def migrate(path: Path) -> None:
        store = SqliteStore(path)
        await store.open()
        await store.migrate()
        await store.close()

    with tempfile.TemporaryDirectory(prefix="stepkeep-golden-") as folder:
        path = Path(folder) / "schema.db"
        asyncio.run(migrate(path))
        connection = apsw.Connection(str(path))
        query = "select type, name, sql from sqlite_schema where sql is not null order by type, name"
        rows = list(connection.execute(query))
        connection.close()
    return "".join(f"-- {kind} {name}\n{_normal(sql)}\n\n" for kind, name, sql in rows)


POSTGRES_SCHEMA = {
    "columns": """
        select format('%s.%s %s%s%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
            case when a.attnotnull then ' not null' else '' end,
            coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), ''))
        from pg_attribute a join pg_class c on c.oid = a.attrelid
        left join pg_attrdef d on (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
        where c.relnamespace = 'stepkeep'::regnamespace and c.relkind in ('r', 'p', 'v') and a.attnum > 0
            and not a.attisdropped
        order by c.relname, a.attname""",
    "constraints": """
        select format('%s.%s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) from pg_constraint
        where connamespace = 'stepkeep'::regnamespace and conrelid <> 0 order by conrelid::regclass::text, conname""",
    "indexes": "select indexdef from pg_indexes where schemaname = 'stepkeep' order by tablename, indexname",
    "triggers": """
        select pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid
        where c.relnamespace = 'stepkeep'::regnamespace and not tgisinternal order by c.relname, tgname""",
    "functions": """
        select pg_get_functiondef(oid) from pg_proc where pronamespace = 'stepkeep'::regnamespace order by proname""",
    "policies": """
        select format('%s.%s %s %s %s %s', tablename, policyname, cmd, roles, qual, with_check) from pg_policies
        where schemaname = 'stepkeep' order by tablename, policyname""",
    "storage": """
        select format('%s %s', relname, reloptions) from pg_class
        where relnamespace = 'stepkeep'::regnamespace and reloptions is not null order by relname""",
}


def _postgres_schema() -> str:
    import asyncpg

    from stepkeep.store.postgres.store import PostgresStore

    async def read(dsn: str) -> str:
        store = PostgresStore(dsn)
        await store.open()
        await store.migrate()
        await store.close()
        connection = await asyncpg.connect(dsn)
        try:
            parts = [(title, await connection.fetch(query)) for title, query in POSTGRES_SCHEMA.items()]
        finally:
            await connection.close()
        return "".join(f"-- {title}\n" + "\n".join(_normal(row[0]) for row in rows) + "\n\n" for title, rows in parts)

    with PostgresServer(settings={"fsync": "off"}) as server, server.fresh_database(empty=True) as dsn:
        return asyncio.run(read(dsn))


def _normal(sql: str) -> str:
    return "\n".join(line.rstrip() for line in sql.strip().splitlines() if line.strip())


def _openapi() -> str:
    from stepkeep.api.app import create_app
    from stepkeep.engine import AsyncEngine

    described: dict[str, Any] = {**create_app(AsyncEngine("sqlite:///unused.db")).openapi()}
    components = {**described.pop("components")}
    schemas = components.pop("schemas")

    def resolved(value: Any, above: tuple[str, ...] = ()) -> Any:
        if isinstance(value, list):
            return [resolved(one, above) for one in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            name = value["$ref"].rpartition("/")[2]
            if name in above:
                return {"$ref": "above"}
            rest = {key: one for key, one in value.items() if key != "$ref"}
            return resolved(schemas[name] | rest, (*above, name))
        return {key: resolved(one, above) for key, one in value.items()}

    lines = [
        f"{method.upper()} {path}\n{json.dumps(resolved(operation), indent=1, sort_keys=True)}\n"
        for path, operations in sorted(described.pop("paths").items())
        for method, operation in sorted(operations.items())
    ]
    return json.dumps({**described, "components": components}, indent=1, sort_keys=True) + "\n" + "".join(lines)


def _help() -> str:
    return "".join(f"## stepkeep {' '.join(path)}\n{_options(command)}\n" for path, command in program())


def _options(command: Any) -> str:
    rows = [command.help or ""]
    for one in command.params:
        if one.name == "help":
            continue
        names = ", ".join((*one.opts, *one.secondary_opts))
        default = None if callable(one.default) else one.default
        rows.append(f"  {names} {one.metavar or ''} = {default!r}: {getattr(one, 'help', '') or ''}")
    return "\n".join(rows) + "\n"


def _python() -> str:
    import stepkeep

    names = sorted(stepkeep.__all__)  # type: ignore[attr-defined]  # the stub says each name once
    return "".join(f"{line}\n" for name in names for line in _named(name, getattr(stepkeep, name)))


def _named(name: str, found: Any) -> Iterator[str]:
    yield f"{name}{_signature(found)}"
    yield from (f"    {line}" for line in (inspect.getdoc(found) or "").splitlines())
    if inspect.isclass(found) and not issubclass(found, BaseException):
        for member, value in sorted(vars(found).items()):
            if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                yield f"  .{member}{_signature(value)}"
                yield from (f"      {line}" for line in (inspect.getdoc(value) or "").splitlines())


WHERE = re.compile(r"\bstepkeep(?:\.[a-z_]+)+\.")
"""The module of a type, which is no part of what users may rely on."""


def _signature(found: Any) -> str:
    if isinstance(found, property):
        return f": {inspect.signature(found.fget).return_annotation}" if found.fget is not None else ""
    try:
        return WHERE.sub("", str(inspect.signature(found)))
    except (TypeError, ValueError):
        return ""


def _metrics() -> str:
    from stepkeep.metrics.families import METRICS

    return "".join(f"{one.name} {one.kind} {','.join(one.labels)}: {one.help}\n" for one in METRICS.values())


def _grants() -> str:
    from stepkeep.store.postgres.grants import Part, grants

    return "".join(f"{line}\n" for part in Part for line in grants(f"stepkeep_{part}", part, database="stepkeep"))


def _states() -> str:
    from stepkeep.kernel.machine.tables import MACHINES

    return "".join(
        f"{machine.name}: {row.source or 'new'} by {row.trigger} to {row.target} ({row.cites})\n"
        for machine in MACHINES
        for row in machine.rows
    )


def _definition_schema() -> str:
    from stepkeep.definition.native.written import schema_text

    return schema_text()


DOCUMENTS: dict[str, Callable[[], str]] = {
    "schema-sqlite.sql": _sqlite_schema,
    "schema-postgres.sql": _postgres_schema,
    "openapi.txt": _openapi,
    "help.txt": _help,
    "answers.txt": answers,
    "python.txt": _python,
    "metrics.txt": _metrics,
    "grants.sql": _grants,
    "states.txt": _states,
    "definition.schema.json": _definition_schema,
}
