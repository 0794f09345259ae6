-- Delete the steps of runs that are deleted.
delete from steps
using unnest($2::text::uuid[]) as gone (run_id)
where steps.tenant = $1 and steps.run_id = gone.run_id
