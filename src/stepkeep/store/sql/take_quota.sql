-- Take a place for a run, if one is free.
insert into quota_runs (tenant, scope, run_id, taken_at)
select $1, $2, $3::text::uuid, $4::bigint
where (select count(*) from quota_runs where tenant = $1 and scope = $2) < $5::bigint
returning scope
