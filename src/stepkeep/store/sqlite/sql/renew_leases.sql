-- Renew a lease that is still valid and return the state of its run.
update steps
set due_at = max(due_at, ?5 + ?6)
where tenant = ?1 and run_id = ?2 and no = ?3 and fence = ?4
    and state in ('running', 'validating') and worker is not null and due_at >= ?5
    and not exists (
        select 1 from quarantine q where q.tenant = steps.tenant and q.run_id = steps.run_id and q.released_at is null)
returning run_id, no, fence, (select state from runs where tenant = steps.tenant and id = steps.run_id)
