-- Add a worker and give it its number.
insert into workers (
    tenant, id, state, incarnation, capacity, capabilities, queues, heard_at, started_at, seq, head, owner)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
returning no
