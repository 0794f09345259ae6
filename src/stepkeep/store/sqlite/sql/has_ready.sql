-- Tell whether any of these queues has a claimable step. ?1 is JSON: [queue, ...].
select exists (
    select 1
    from json_each(?1) asked
    cross join steps
    where steps.queue = asked.value and steps.ready_at < 100000000000000000 and steps.ready_at <= ?2
        and not exists (
            select 1 from quarantine q where q.tenant = steps.tenant and q.run_id = steps.run_id and q.released_at is null)
)
