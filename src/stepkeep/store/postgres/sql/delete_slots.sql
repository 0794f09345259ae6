-- Delete the slots of runs that are deleted.
delete from slots
using unnest($2::text::uuid[]) as gone (run_id)
where slots.tenant = $1 and slots.run_id = gone.run_id
