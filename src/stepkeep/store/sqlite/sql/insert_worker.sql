-- Add a worker and give it its number.
insert into workers (
    tenant, id, state, incarnation, capacity, capabilities, queues, heard_at, started_at, seq, head, owner
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
returning no
