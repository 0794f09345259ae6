-- Record that a new run waits for an execution slot.
insert into slots (tenant, run_id, workflow, most, priority, asked_at, granted_at)
values ($1, $2::uuid, $3, $4, $5, $6, $7)
