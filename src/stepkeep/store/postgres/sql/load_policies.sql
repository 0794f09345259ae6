-- Read the newest policies of tenants.
select newest.tenant, newest.revision, newest.name, newest.digest, newest.document, newest.published_at,
    newest.published_by
from unnest($1::text[]) as wanted (tenant)
cross join lateral (
    select tenant, revision, name, digest, document, published_at, published_by
    from policies
    where policies.tenant = wanted.tenant
    order by revision desc
    limit 1
) as newest
