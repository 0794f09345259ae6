-- Read the delegations to these persons.
select found.*
from unnest($1::text[], $2::text[]) as wanted (tenant, name)
cross join lateral (
    select tenant, id, delegator, delegate, granted_at, granted_by, reason, valid_from, valid_to, revoked_at,
        revoked_by
    from delegations
    where delegations.tenant = wanted.tenant and delegations.delegate = wanted.name
    offset 0
) as found
order by found.granted_at, found.id
