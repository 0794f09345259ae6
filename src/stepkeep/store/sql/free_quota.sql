-- Delete the places of runs that have ended, and those whose run was not created in time.
delete from quota_runs
where tenant = $1 and scope = $2 and not exists (
    select 1 from runs
    where runs.tenant = quota_runs.tenant and runs.id = quota_runs.run_id and runs.ended_at is null
) and (taken_at < $3 or exists (
    select 1 from runs where runs.tenant = quota_runs.tenant and runs.id = quota_runs.run_id
))
returning scope
