-- Record what a person did.
insert into delivery_actions (tenant, at, actor, action, sink, run_id, seq, number, reason)
values ($1, stepkeep_now() + $2::bigint, $3, $4, $5, $6::uuid, $7, $8, $9)
