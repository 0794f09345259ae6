-- Lock those of the given runs that are finished, not locked, have nothing left to deliver, and have no live run
-- that adopted from them or from a run above them.
select run.id::text
from unnest($2::text::uuid[]) as wanted (run_id)
cross join lateral (
    select id
    from runs
    where runs.tenant = $1 and runs.id = wanted.run_id and runs.ended_at is not null
        and (runs.tenant, runs.id) not in (select tenant, run_id from quarantine where released_at is null)
        and not exists (
            select 1 from adoptions a join runs r on r.tenant = a.tenant and r.id = a.run_id
            where a.tenant = runs.tenant and a.source_run = runs.id and r.ended_at is null)
        and not exists (
            select 1
            from (select * from deliveries where tenant = runs.tenant and run_id = runs.id offset 0) as c
            where (c.ready_at is not null or c.dead_at is not null)
                and (
                    c.sink = 'webhook_url' or substr(c.sink, 1, 5) = 'hook:'
                    or exists (select 1 from sinks s where s.tenant = c.tenant and s.name = c.sink)))
        and not exists (
            select 1
            from (
                select tenant, trigger_name from firings
                where tenant = runs.tenant and source = runs.id::text and state = 'awaiting'
                offset 0) as f
            join triggers t on t.tenant = f.tenant and t.name = f.trigger_name
            where t.removed_at is null)
        and not exists (
            with recursive above (id) as (
                select c.run_id from children c where c.tenant = runs.tenant and c.child_id = runs.id
                union
                select c.run_id from above a join children c on c.tenant = runs.tenant and c.child_id = a.id)
            select 1 from above a
            where exists (select 1 from runs p where p.tenant = runs.tenant and p.id = a.id and p.ended_at is null)
                or exists (
                    select 1 from adoptions o join runs r on r.tenant = o.tenant and r.id = o.run_id
                    where o.tenant = runs.tenant and o.source_run = a.id and r.ended_at is null))
    for update skip locked
) as run
