-- Delete the signatures of runs that are deleted.
delete from signed_heads
using unnest($2::text::uuid[]) as gone (run_id)
where signed_heads.tenant = $1 and signed_heads.run_id = gone.run_id
