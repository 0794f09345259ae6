-- Delete the links to children of runs that are deleted.
delete from children
using unnest($2::text::uuid[]) as gone (run_id)
where children.tenant = $1 and children.run_id = gone.run_id
