-- Claim due cursors of a sink, oldest first; those that another transaction holds are skipped. $5 is the length of the
-- lease.
with clock as materialized (
    select stepkeep_now() + $4::bigint as now
),
found as materialized (
    select d.tenant, d.run_id, d.sink
    from deliveries d
    where d.tenant = $1 and d.sink = $2 and d.ready_at <= (select now from clock)
        and (d.tenant, d.run_id) not in (select tenant, run_id from quarantine where released_at is null)
    order by d.ready_at
    limit $3::int
    for update skip locked
)
update deliveries
set fence = fence + 1, lease_until = clock.now + $5::bigint, ready_at = clock.now + $5::bigint, holder = $6
from found cross join clock
where deliveries.tenant = found.tenant and deliveries.run_id = found.run_id and deliveries.sink = found.sink
returning deliveries.tenant, deliveries.run_id::text, deliveries.sink, takes, last, sent, sent_number, attempts, fence,
    ready_at, lease_until, holder, dead_at, error, target
