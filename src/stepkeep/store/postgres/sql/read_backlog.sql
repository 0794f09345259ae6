-- Count the claimable steps of queues, up to a limit each, and find the oldest. It visits each priority of a queue once,
-- because the index orders by time only within a priority. Steps of paused runs, and those that need resources, have a
-- time beyond every clock.
with recursive levels (queue, priority) as (
    select asked.queue, first.priority
    from unnest($1::text::int[]) as asked (queue)
    cross join lateral (
        select steps.priority
        from steps
        where steps.queue = asked.queue and steps.ready_at < 100000000000000000
        order by steps.priority desc, steps.ready_at
        limit 1) as first
    union all
    select levels.queue, next.priority
    from levels
    cross join lateral (
        select steps.priority
        from steps
        where steps.queue = levels.queue and steps.priority < levels.priority and steps.ready_at < 100000000000000000
        order by steps.priority desc, steps.ready_at
        limit 1) as next
),
oldest (queue, ready_at) as (
    select levels.queue, min(first.ready_at)
    from levels
    cross join lateral (
        select steps.ready_at
        from steps
        where steps.queue = levels.queue and steps.priority = levels.priority and steps.ready_at < 100000000000000000
        order by steps.ready_at
        limit 1) as first
    group by levels.queue
)
select oldest.queue, depth.steps, oldest.ready_at
from oldest
cross join lateral (
    select count(*) as steps
    from (
        select
        from steps
        where steps.queue = oldest.queue and steps.ready_at < 100000000000000000
        limit $2::int) as ready) as depth
