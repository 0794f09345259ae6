"""A role of the API under row-level security, with the rights that `stepkeep db grants` prints."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import psycopg

from stepkeep.store.postgres.grants import Part, grants, quoted

ROLE = "stepkeep_test_api"

UNPROTECTED = """
select relname from pg_class
where relnamespace = 'stepkeep'::regnamespace and relkind in ('r', 'p') and not relispartition
    and not (relrowsecurity and relforcerowsecurity and exists (
        select 1 from pg_policy
        where polrelid = pg_class.oid and polname = 'stepkeep_own_tenant' and not polpermissive and polcmd = '*'
            and %s::regrole = any (polroles)
    ))
order by relname
"""


def as_role(dsn: str, role: str) -> str:
    """The same database as another role, which needs no password in the tests."""
    parts = urlsplit(dsn)
    return urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}"))


def confine(dsn: str, role: str = ROLE) -> str:
    """Give a role the rights of the API in this database; returns its DSN."""
    database = urlsplit(dsn).path.strip("/")
    with psycopg.connect(dsn, autocommit=True) as session:
        if session.execute("select 1 from pg_roles where rolname = %s", (role,)).fetchone() is None:
            session.execute(f"create role {quoted('the role', role)} login".encode())
        for statement in grants(role, Part.API, database=database):
            session.execute(statement.encode())
    return as_role(dsn, role)


def unprotected(dsn: str, role: str = ROLE) -> set[str]:
    """The tables without a policy that confines this role."""
    with psycopg.connect(dsn, autocommit=True) as session:
        return {str(name) for (name,) in session.execute(UNPROTECTED, (role,))}
