-- Keep the evidence of an attempt; the first one stays.
insert into attempt_evidence (tenant, run_id, no, fence, body)
values ($1, $2::uuid, $3, $4, $5)
on conflict do nothing
