-- Record that a step holds a resource.
insert into resource_holds (tenant, run_id, no, fence, resource, step, mode, units, held_at)
values ($1, $2::uuid, $3, $4, $5, $6, $7, $8, $9)
