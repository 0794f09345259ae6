-- Delete idempotency keys of runs that were deleted and were started before a given time, oldest first.
delete from idempotency_keys
where ctid = any(array(
    select ctid
    from idempotency_keys
    where tenant = $1 and run_id < $2::uuid
        and not exists (
            select from runs where runs.tenant = idempotency_keys.tenant and runs.id = idempotency_keys.run_id)
    order by run_id
    limit $3
))
