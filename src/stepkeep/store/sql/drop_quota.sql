-- Give back the places of a run that was not created.
delete from quota_runs
where tenant = $1 and scope = $2 and run_id = $3::text::uuid
returning scope
