-- Delete the adoptions of runs that are deleted.
delete from adoptions
using unnest($2::text::uuid[]) as gone (run_id)
where adoptions.tenant = $1 and adoptions.run_id = gone.run_id
