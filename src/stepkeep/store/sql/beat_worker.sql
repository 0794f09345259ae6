-- Record a heartbeat of this incarnation of a worker.
update workers
set heard_at = greatest(heard_at, stepkeep_now() + $4::bigint)
where tenant = $1 and no = $2 and incarnation = $3 and state <> 'shutdown'
returning tenant, id, no, state, incarnation, capacity, capabilities, queues, heard_at, started_at, seq, head, owner
