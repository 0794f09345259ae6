-- Add queues that are not there yet; in order, so that two transactions cannot wait for each other.
insert into queues (tenant, spec)
select $1, spec
from unnest($2::text[]) as asked (spec)
where not exists (select from queues where queues.tenant = $1 and queues.spec = asked.spec)
order by spec
on conflict (tenant, spec) do nothing
