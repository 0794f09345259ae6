-- List the schemas of a tenant by reference, after a given one.
select tenant, ref, digest, document, published_at, published_by
from schemas
where tenant = $1 and ref > $2
order by ref
limit $3
