-- Read the cursors of a run.
select tenant, run_id::text, sink, takes, last, sent, sent_number, attempts, fence, ready_at, lease_until, holder, dead_at,
    error, target
from deliveries
where tenant = $1 and run_id = $2::uuid
order by sink
