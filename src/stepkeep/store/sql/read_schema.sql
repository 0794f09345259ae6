-- Read a schema by its reference.
select tenant, ref, digest, document, published_at, published_by
from schemas
where tenant = $1 and ref = $2
