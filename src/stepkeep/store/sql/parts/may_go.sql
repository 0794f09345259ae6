-- Which ended runs retention may delete: those that are not set aside, that a live run did not adopt from, that have
-- nothing left to deliver, to tell a trigger or to do for a child, and that have no live run above them, nor one that
-- adopted from a run above them.
    and not exists (
        select 1 from quarantine q
        where q.tenant = runs.tenant and q.run_id = runs.id and q.released_at is null offset 0)
    and not exists (
        select 1 from adoptions o join runs r on r.tenant = o.tenant and r.id = o.run_id
        where o.tenant = runs.tenant and o.source_run = runs.id and r.ended_at is null)
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
            where tenant = runs.tenant and source = runs.id::text and state = 'awaiting' offset 0) as f
        join triggers t on t.tenant = f.tenant and t.name = f.trigger_name
        where t.removed_at is null)
    and not exists (
        select 1 from children c where c.tenant = runs.tenant and c.run_id = runs.id and c.todo is not null)
    and not exists (
        select 1 from children c where c.tenant = runs.tenant and c.child_id = runs.id and c.todo is not null)
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
