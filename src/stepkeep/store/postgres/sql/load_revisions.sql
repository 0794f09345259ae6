-- Read revisions of policies by their numbers.
select found.tenant, found.revision, found.name, found.digest, found.document, found.published_at, found.published_by
from unnest($1::text[], $2::text::integer[]) as wanted (tenant, revision)
cross join lateral (
    select tenant, revision, name, digest, document, published_at, published_by
    from policies
    where policies.tenant = wanted.tenant and policies.revision = wanted.revision
    offset 0
) as found
