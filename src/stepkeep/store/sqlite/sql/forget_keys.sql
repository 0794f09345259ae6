-- Delete idempotency keys of runs that were deleted and were started before a given time, oldest first.
delete from idempotency_keys
where (tenant, operation, key, scope) in (
    select k.tenant, k.operation, k.key, k.scope
    from idempotency_keys k
    where k.tenant = ?1 and k.run_id < ?2
        and not exists (select 1 from runs r where r.tenant = k.tenant and r.id = k.run_id)
    order by k.run_id
    limit ?3)
