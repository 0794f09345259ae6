-- Delete the inboxes of runs that are deleted.
delete from messages
using unnest($2::text::uuid[]) as gone (run_id)
where messages.tenant = $1 and messages.run_id = gone.run_id
