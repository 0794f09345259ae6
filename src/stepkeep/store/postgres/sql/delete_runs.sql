-- Delete runs.
delete from runs
using unnest($2::text::uuid[]) as gone (run_id)
where runs.tenant = $1 and runs.id = gone.run_id
