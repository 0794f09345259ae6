-- Delete the attempts of runs that are deleted.
delete from attempts
using unnest($2::text::uuid[]) as gone (run_id)
where attempts.tenant = $1 and attempts.run_id = gone.run_id
