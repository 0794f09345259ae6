-- Delete the details of runs that are deleted.
delete from run_details
using unnest($2::text::uuid[]) as gone (run_id)
where run_details.tenant = $1 and run_details.run_id = gone.run_id
