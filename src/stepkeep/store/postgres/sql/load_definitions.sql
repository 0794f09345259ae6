-- Read definitions by id.
select tenant, id, name, version, dialect, digest, document, queues, published_at, published_by
from definitions
where id = any($1::text::int[])
