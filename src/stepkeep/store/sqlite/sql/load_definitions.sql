-- Read definitions by id. ?1 is JSON: [id, ...].
select tenant, id, name, version, dialect, digest, document, queues, published_at, published_by
from definitions
where id in (select value from json_each(?1))
