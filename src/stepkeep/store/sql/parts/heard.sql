-- Advance the delivery cursors of sinks that take more than what the runs of `moved` emit, and note those that end for
-- the triggers that are about their workflow.
advanced as (
    update deliveries
    set last = moved.seq,
        ready_at = case when deliveries.dead_at is null then coalesce(deliveries.ready_at, (select now from clock)) end
    from moved
    where deliveries.tenant = moved.tenant and deliveries.run_id = moved.run_id
        and (deliveries.takes & 6 <> 0 or (deliveries.takes & 8 <> 0 and moved.has_ended))
),
noted as (
    insert into firings (tenant, trigger_name, moment, due_at, state, watched, made_at, depth, source)
    select triggers.tenant, triggers.name, ended.run_id::text, now, 'awaiting', 1, now, 0, ended.run_id::text
    from (
        select run_id, (
            select workflow from run_details where run_details.tenant = $2::text and run_details.run_id = moved.run_id
        ) as workflow
        from moved
        where has_ended
        offset 0
    ) as ended
    join triggers on triggers.tenant = $2::text and triggers.topic = ended.workflow
    cross join clock
    where triggers.kind = 'ended' and triggers.removed_at is null
    order by ended.run_id, triggers.name
    on conflict (tenant, trigger_name, moment) do nothing
)
