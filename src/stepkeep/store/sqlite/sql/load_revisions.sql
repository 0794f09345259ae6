-- Read revisions of policies by their numbers. ?1 is JSON: [[tenant, revision], ...].
select p.tenant, p.revision, p.name, p.digest, p.document, p.published_at, p.published_by
from json_each(?1) w
cross join policies p on p.tenant = w.value ->> 0 and p.revision = w.value ->> 1
