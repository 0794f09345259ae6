-- Pass over the dead entry ($5, $6) of a cursor; the rest is due now. Nothing after it may be passed over.
update deliveries
set dead_at = null, attempts = 0, error = null, sent = $5, sent_number = $6, ready_at = stepkeep_now() + $4::bigint
where tenant = $1 and run_id = $2::uuid and sink = $3 and dead_at is not null
    and (sent, sent_number) < ($5::bigint, $6::int) and $5::bigint <= last
returning fence
