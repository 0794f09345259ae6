-- Tell whether any of these queues has a step to claim. ?1 is JSON: [queue, ...].
select exists (
    select 1
    from json_each(?1) asked
    cross join steps
    where steps.queue = asked.value and steps.ready_at <= ?2
)
