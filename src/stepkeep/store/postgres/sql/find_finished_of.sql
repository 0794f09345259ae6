-- Find runs of a workflow between two ids that ended by a given time and have nothing left to deliver or to tell, oldest
-- first. A run is kept while a run above it lives, or while a live run adopted from one above it.
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
        select 1
        from (select * from deliveries where tenant = details.tenant and run_id = details.run_id offset 0) as c
        where (c.ready_at is not null or c.dead_at is not null)
            and (
                c.sink = 'webhook_url' or substr(c.sink, 1, 5) = 'hook:'
                or exists (select 1 from sinks s where s.tenant = c.tenant and s.name = c.sink)))
    and not exists (
        select 1
        from (
            select tenant, trigger_name from firings
            where tenant = details.tenant and source = details.run_id::text and state = 'awaiting'
            offset 0) as f
        join triggers t on t.tenant = f.tenant and t.name = f.trigger_name
        where t.removed_at is null)
    and not exists (
        select 1 from children c
        where c.tenant = details.tenant and c.run_id = details.run_id and c.todo is not null)
    and not exists (
        select 1 from children c
        where c.tenant = details.tenant and c.child_id = details.run_id and c.todo is not null)
    and not exists (
        with recursive above (id) as (
            select c.run_id from children c where c.tenant = details.tenant and c.child_id = details.run_id
            union
            select c.run_id from above a join children c on c.tenant = details.tenant and c.child_id = a.id)
        select 1 from above a
        where exists (select 1 from runs p where p.tenant = details.tenant and p.id = a.id and p.ended_at is null)
            or exists (
                select 1 from adoptions o join runs r on r.tenant = o.tenant and r.id = o.run_id
                where o.tenant = details.tenant and o.source_run = a.id and r.ended_at is null))
order by details.run_id
limit $5
