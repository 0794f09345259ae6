-- Claim due cursors of a sink, oldest first. ?4 is the time, ?5 the length of the lease.
update deliveries
set fence = fence + 1, lease_until = ?4 + ?5, ready_at = ?4 + ?5, holder = ?6
where rowid in (
    select d.rowid
    from deliveries d
    where d.tenant = ?1 and d.sink = ?2 and d.ready_at <= ?4
        and not exists (
            select 1 from quarantine q where q.tenant = d.tenant and q.run_id = d.run_id and q.released_at is null)
    order by d.ready_at
    limit ?3)
returning tenant, run_id, sink, takes, last, sent, sent_number, attempts, fence, ready_at, lease_until, holder, dead_at, error,
    target
