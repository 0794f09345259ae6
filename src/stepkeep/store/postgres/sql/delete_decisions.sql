-- Delete the decisions of runs that are deleted.
delete from decisions
using unnest($2::text::uuid[]) as gone (run_id)
where decisions.tenant = $1 and decisions.run_id = gone.run_id
