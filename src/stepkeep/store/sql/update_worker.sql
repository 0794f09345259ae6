-- Write a worker row that is still at the journal sequence it was read at; a later heartbeat is kept.
update workers
set state = $3, incarnation = $4, capacity = $5, capabilities = $6, queues = $7,
    heard_at = greatest(heard_at, $8), started_at = $9, seq = $10, head = $11, owner = $12
where tenant = $1 and id = $2 and seq = $13
