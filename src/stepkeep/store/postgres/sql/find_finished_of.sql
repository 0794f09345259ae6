-- Find runs of a workflow between two ids that ended by a given time and have nothing left to deliver or to tell, oldest
-- first.
select run.id::text
from run_details as details
cross join lateral (
    select id
    from runs
    where runs.tenant = details.tenant and runs.id = details.run_id and runs.ended_at <= $4::bigint
    offset 0
) as run
where details.tenant = $1 and details.workflow = $6 and details.run_id > $2::uuid and details.run_id < $3::uuid
    and (details.tenant, details.run_id) not in (select tenant, run_id from quarantine where released_at is null)
    and not exists (
        select 1 from deliveries c
        where c.tenant = details.tenant and c.run_id = details.run_id and (c.ready_at is not null or c.dead_at is not null)
            and (
                c.sink = 'webhook_url' or substr(c.sink, 1, 5) = 'hook:'
                or exists (select 1 from sinks s where s.tenant = c.tenant and s.name = c.sink)))
    and not exists (
        select 1 from firings f join triggers t on t.tenant = f.tenant and t.name = f.trigger_name
        where f.tenant = details.tenant and f.source = details.run_id::text and f.state = 'awaiting' and t.removed_at is null)
    and not exists (
        select 1 from children c
        where c.tenant = details.tenant and c.run_id = details.run_id and c.todo is not null)
    and not exists (
        select 1 from children c
        where c.tenant = details.tenant and c.child_id = details.run_id
            and (c.todo is not null or exists (
                select 1 from runs p where p.tenant = c.tenant and p.id = c.run_id and p.ended_at is null)))
order by details.run_id
limit $5
