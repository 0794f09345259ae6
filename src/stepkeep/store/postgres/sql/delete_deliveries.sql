-- Delete the cursors of runs that are deleted.
delete from deliveries
using unnest($2::text::uuid[]) as gone (run_id)
where deliveries.tenant = $1 and deliveries.run_id = gone.run_id
