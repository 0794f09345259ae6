-- Find runs of a workflow between two ids that ended by a given time and have nothing left to deliver or to tell, oldest
-- first. A run is kept while a run above it lives, or while a live run adopted from one above it.
select d.run_id
from run_details d
cross join runs r on r.tenant = d.tenant and r.id = d.run_id
where d.tenant = ?1 and d.workflow = ?6 and d.run_id > ?2 and d.run_id < ?3 and r.ended_at <= ?4
    and not exists (
        select 1 from quarantine q where q.tenant = d.tenant and q.run_id = d.run_id and q.released_at is null)
    and not exists (
        select 1 from deliveries c
        where c.tenant = d.tenant and c.run_id = d.run_id and (c.ready_at is not null or c.dead_at is not null)
            and (
                c.sink = 'webhook_url' or substr(c.sink, 1, 5) = 'hook:'
                or exists (select 1 from sinks s where s.tenant = c.tenant and s.name = c.sink)))
    and not exists (
        select 1 from firings f join triggers t on t.tenant = f.tenant and t.name = f.trigger_name
        where f.tenant = d.tenant and f.source = d.run_id and f.state = 'awaiting' and t.removed_at is null)
    and not exists (
        select 1 from children c
        where c.tenant = d.tenant and c.run_id = d.run_id and c.todo is not null)
    and not exists (
        select 1 from children c
        where c.tenant = d.tenant and c.child_id = d.run_id and c.todo is not null)
    and not exists (
        with recursive above (id) as (
            select c.run_id from children c where c.tenant = d.tenant and c.child_id = d.run_id
            union
            select c.run_id from above a join children c on c.tenant = d.tenant and c.child_id = a.id)
        select 1 from above a
        where exists (select 1 from runs p where p.tenant = d.tenant and p.id = a.id and p.ended_at is null)
            or exists (
                select 1 from adoptions o join runs r on r.tenant = o.tenant and r.id = o.run_id
                where o.tenant = d.tenant and o.source_run = a.id and r.ended_at is null))
order by d.run_id
limit ?5
