-- Write the hot columns of steps that were not and are not claimable, so that the index of claimable steps is
-- unchanged. If a time is given, only over leases that are still valid at it.
update steps
set state = ?4, due_at = ?5, fence = ?6, worker = ?7, claimed_at = ?8, unmet = ?9, settled = ?10
where tenant = ?1 and run_id = ?2 and no = ?3 and ready_at is null
    and (?11 is null or worker is null or due_at >= ?11)
