-- List the definitions of a tenant by name, newest version first.
select tenant, id, name, version, dialect, digest, document, queues, published_at, published_by
from definitions
where tenant = $1
order by name, version desc
