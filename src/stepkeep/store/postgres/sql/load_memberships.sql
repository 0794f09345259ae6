-- Read what these persons were given, and the roles of their groups.
with own as (
    select found.*
    from unnest($1::text[], $2::text[]) as wanted (tenant, name)
    cross join lateral (
        select tenant, id, subject, subject_kind, kind, name, granted_at, granted_by, valid_from, valid_to,
            revoked_at, revoked_by
        from memberships
        where memberships.tenant = wanted.tenant and subject_kind = 'person' and subject = wanted.name
        offset 0
    ) as found
)
select *
from own
union
select found.*
from (select distinct tenant, name from own where kind = 'group') as groups
cross join lateral (
    select tenant, id, subject, subject_kind, kind, name, granted_at, granted_by, valid_from, valid_to, revoked_at,
        revoked_by
    from memberships
    where memberships.tenant = groups.tenant and subject_kind = 'group' and subject = groups.name
    offset 0
) as found
order by granted_at, id
