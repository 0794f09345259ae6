-- Count the claimable steps of queues, up to a limit each, and find the oldest. It visits each priority of a queue once,
-- because the index orders by time only within a priority. Steps of paused runs, and those that need resources, have a
-- time beyond every clock. ?1 is JSON: [queue, ...].
with recursive levels (queue, priority) as (
    select asked.value, (
        select s.priority
        from steps s indexed by steps_claim
        where s.queue = asked.value and s.ready_at < 100000000000000000
        order by s.priority desc
        limit 1)
    from json_each(?1) asked
    union all
    select levels.queue, (
        select s.priority
        from steps s indexed by steps_claim
        where s.queue = levels.queue and s.priority < levels.priority and s.ready_at < 100000000000000000
        order by s.priority desc
        limit 1)
    from levels
    where levels.priority is not null
),
oldest (queue, ready_at) as (
    select levels.queue, min((
        select s.ready_at
        from steps s indexed by steps_claim
        where s.queue = levels.queue and s.priority = levels.priority and s.ready_at < 100000000000000000
        order by s.ready_at
        limit 1))
    from levels
    where levels.priority is not null
    group by levels.queue
)
select oldest.queue, (
    select count(*)
    from (
        select 1
        from steps s indexed by steps_claim
        where s.queue = oldest.queue and s.ready_at < 100000000000000000
        limit ?2)), oldest.ready_at
from oldest
where oldest.ready_at is not null
