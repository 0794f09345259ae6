-- Delete the gates of runs that are deleted.
delete from gates
using unnest($2::text::uuid[]) as gone (run_id)
where gates.tenant = $1 and gates.run_id = gone.run_id
