-- Insert missing queues; in order, so that two transactions cannot deadlock.
insert into queues (tenant, spec)
select $1, spec
from unnest($2::text[]) as asked (spec)
where not exists (select from queues where queues.tenant = $1 and queues.spec = asked.spec)
order by spec
on conflict (tenant, spec) do nothing
