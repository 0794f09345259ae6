-- Keep a chunk of a large payload; the same payload of the same run is kept once.
insert into payload_chunks (tenant, run_id, digest, no, body)
values ($1, $2::uuid, $3, $4, $5)
on conflict do nothing
