-- Read a definition by name and version, or its newest version where none is given.
select tenant, id, name, version, dialect, digest, document, queues, published_at, published_by
from definitions
where tenant = $1 and name = $2 and version = coalesce($3, version)
order by version desc
limit 1
