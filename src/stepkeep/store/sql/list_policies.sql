-- List the revisions of a tenant's policy, newest first.
select tenant, revision, name, digest, document, published_at, published_by
from policies
where tenant = $1
order by revision desc
limit $2
