-- Tell whether any of these queues has a claimable step.
select exists (
    select
    from unnest($1::text::int[]) as asked (queue)
    cross join lateral (
        select
        from steps
        where steps.queue = asked.queue and steps.ready_at < 100000000000000000
            and steps.ready_at <= (select stepkeep_now() + $2::bigint)
            and (steps.tenant, steps.run_id) not in (select tenant, run_id from quarantine where released_at is null)
        order by steps.priority desc, steps.ready_at
        limit 1
    ) as candidate
)
