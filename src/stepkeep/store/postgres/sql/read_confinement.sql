-- Read whether this role sees one tenant at a time; whether policies name it that do not hold for it; and, of a role that
-- is confined, the relations of the schema that it may use without a policy.
select is_confined, is_named and not is_confined,
    case when is_confined then array(
        select relname::text
        from pg_class
        where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p', 'v', 'm', 'f')
            and relname <> 'migrations'
            and (has_any_column_privilege(pg_class.oid, 'select, insert, update')
                or has_table_privilege(pg_class.oid, 'delete, truncate'))
            and not (relrowsecurity and exists (
                select 1
                from pg_policy, unnest(polroles) as role
                where polrelid = pg_class.oid and polname = 'stepkeep_own_tenant' and pg_has_role(role, 'usage')
            ))
        order by relname
    ) end
from (
    select coalesce(bool_or(row_security_active(polrelid) and pg_has_role(role, 'usage')), false),
        coalesce(bool_or(pg_get_userbyid(role) = current_user), false)
    from pg_policy, unnest(polroles) as role
    where polrelid = to_regclass('runs') and polname = 'stepkeep_own_tenant'
) as found (is_confined, is_named)
