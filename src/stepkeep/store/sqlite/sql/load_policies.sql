-- Read the newest policies of tenants. ?1 is JSON: [tenant, ...].
select p.tenant, p.revision, p.name, p.digest, p.document, p.published_at, p.published_by
from json_each(?1) w
cross join policies p on p.tenant = w.value
where p.revision = (select max(revision) from policies where tenant = w.value)
