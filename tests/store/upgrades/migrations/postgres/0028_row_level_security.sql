-- Row-level security for roles that act for one tenant at a time. It is off until the owner confines the first such role.
--
-- `stepkeep db grants ROLE --as api` prints the call of stepkeep_confine. Every table with a column `tenant` is confined,
-- those of later migrations too, when the owner runs the grants again. The owner and the other roles see all rows.

-- The tenant of this transaction. An unset tenant is an error, never "no rows".
create function stepkeep_tenant() returns text language plpgsql stable parallel safe
set search_path = pg_catalog, pg_temp as $$
declare
    name constant text := current_setting('stepkeep.tenant', true);
begin
    if name is null or name = '' then
        raise exception 'the setting stepkeep.tenant is not set in this transaction' using errcode = 'insufficient_privilege';
    end if;
    return name;
end;
$$;

-- What a confined role may learn about other tenants: the tenant of a key or of a session, by its id, and their names.
-- The bodies are bound to their tables now, so that no search path reaches into them.
create function stepkeep_tenant_of_key(text) returns text language sql stable security definer
set search_path = pg_catalog, pg_temp
return (select tenant from api_keys where id = $1);

create function stepkeep_tenant_of_session(text) returns text language sql stable security definer
set search_path = pg_catalog, pg_temp
return (select tenant from sessions where id = $1);

create function stepkeep_tenant_names(integer) returns setof text language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
    select name from tenants order by name limit $1;
end;

revoke execute on function stepkeep_tenant_of_key(text), stepkeep_tenant_of_session(text), stepkeep_tenant_names(integer)
    from public;

-- Confine a role to the rows of one tenant in every table that has a tenant, and return the number of tables that changed.
-- A table that is confined already is not locked.
create function stepkeep_confine(home regnamespace, who regrole) returns integer language plpgsql volatile
set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
    confined record;
    changed integer := 0;
begin
    if (select rolsuper or rolbypassrls from pg_roles where oid = who) then
        raise exception 'the role % bypasses row-level security: it is a superuser or has BYPASSRLS', who;
    end if;
    for confined in
        select format('%s.%I', home, relname) as name, relname, relowner, attname, polroles,
            relrowsecurity and relforcerowsecurity as has_security
        from pg_class
        join pg_attribute on attrelid = pg_class.oid and attnum > 0 and not attisdropped
            and attname = case when relname = 'tenants' then 'name' else 'tenant' end
        left join pg_policy on polrelid = pg_class.oid and polname = 'stepkeep_own_tenant'
        where relnamespace = home and relkind in ('r', 'p') and not relispartition
        order by relname
    loop
        if pg_has_role(who, confined.relowner, 'member') then
            raise exception 'the role % has the rights of %, which owns the tables', who, confined.relowner::regrole;
        end if;
        continue when confined.has_security and who::oid = any (confined.polroles);
        changed := changed + 1;
        if not confined.has_security then
            execute format('alter table %s enable row level security, force row level security', confined.name);
        end if;
        if confined.polroles is null then
            execute format('drop policy if exists stepkeep_all_tenants on %s', confined.name);
            execute format('create policy stepkeep_all_tenants on %s using (true)', confined.name);
            execute format(
                'create policy stepkeep_own_tenant on %s as restrictive to %s using (%I = (select %s.stepkeep_tenant()))',
                confined.name, who, confined.attname, home);
        elsif who::oid <> all (confined.polroles) then
            execute format(
                'alter policy stepkeep_own_tenant on %s to %s', confined.name,
                (select string_agg(role::regrole::text, ', ') from unnest(confined.polroles || who::oid) as role));
        end if;
    end loop;
    return changed;
end;
$$;
