-- Read whether names are registered, and as what, and whether their tenants allow vouching.
-- ?1 is JSON: [[tenant, name], ...].
select w.value ->> 0, w.value ->> 1, p.name is not null, p.disabled_at is not null, p.kind = 'service', t.vouching
from json_each(?1) w
left join principals p on p.tenant = w.value ->> 0 and p.name = w.value ->> 1
left join tenants t on t.name = w.value ->> 0
