-- Read keys by their public ids.
select found.*
from unnest($1::text[], $2::text[]) as wanted (tenant, name)
cross join lateral (
    select tenant, id, owner, secret_hash, scopes, created_at, created_by, expires_at, revoked_at, revoked_by,
        replaces, max_concurrent_runs, max_requests_per_min, queues, handlers, lineage
    from api_keys
    where api_keys.tenant = wanted.tenant and api_keys.id = wanted.name
    offset 0
) as found
