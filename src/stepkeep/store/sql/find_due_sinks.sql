-- Find the sinks of a tenant with a cursor that may be claimed. The names are read from the index one by one, so that the
-- cost follows the number of sinks and not that of cursors.
with recursive names (name) as (
    select min(sink) from deliveries where tenant = $1 and ready_at is not null
    union all
    select (select min(d.sink) from deliveries d where d.tenant = $1 and d.sink > names.name and d.ready_at is not null)
    from names
    where names.name is not null
)
select names.name
from names
where exists (select 1 from deliveries d where d.tenant = $1 and d.sink = names.name and d.ready_at <= (select stepkeep_now() + $2::bigint))
    and (
        names.name = 'webhook_url' or substr(names.name, 1, 5) = 'hook:'
        or exists (select 1 from sinks s where s.tenant = $1 and s.name = names.name))
