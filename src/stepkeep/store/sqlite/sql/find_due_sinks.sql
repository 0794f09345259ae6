-- Find the sinks of a tenant with a cursor that may be claimed.
select wanted.name
from (select name from sinks where tenant = ?1 union all select 'webhook_url') as wanted
where exists (select 1 from deliveries d where d.tenant = ?1 and d.sink = wanted.name and d.ready_at <= ?2)
