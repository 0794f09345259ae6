-- Delete the journals of runs that are deleted.
delete from journal
using unnest($2::text::uuid[]) as gone (run_id)
where journal.tenant = $1 and journal.run_id = gone.run_id
