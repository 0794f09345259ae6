-- Read a revision of a tenant's policy, or the newest one where none is given.
select tenant, revision, name, digest, document, published_at, published_by
from policies
where tenant = $1 and revision = coalesce($2, revision)
order by revision desc
limit 1
