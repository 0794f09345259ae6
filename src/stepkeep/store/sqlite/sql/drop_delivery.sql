-- Pass over the dead entry (?5, ?6) of a cursor; the rest is due now. Nothing after it may be passed over.
update deliveries
set dead_at = null, attempts = 0, error = null, sent = ?5, sent_number = ?6, ready_at = ?4
where tenant = ?1 and run_id = ?2 and sink = ?3 and dead_at is not null
    and (sent < ?5 or (sent = ?5 and sent_number < ?6)) and ?5 <= last
returning fence
