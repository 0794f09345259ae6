-- List dead cursors, of one sink or of all, in the order of sink and run.
select tenant, run_id::text, sink, takes, last, sent, sent_number, attempts, fence, ready_at, lease_until, holder, dead_at,
    error, target
from deliveries
where tenant = $1 and dead_at is not null and ($2 = '' or sink = $2)
    and (sink, run_id) > ($3, coalesce(nullif($4, ''), '00000000-0000-0000-0000-000000000000')::uuid)
order by sink, deliveries.run_id
limit $5
