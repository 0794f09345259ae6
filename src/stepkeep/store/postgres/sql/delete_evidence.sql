-- Delete the evidence of runs that are deleted.
delete from attempt_evidence
using unnest($2::text::uuid[]) as gone (run_id)
where attempt_evidence.tenant = $1 and attempt_evidence.run_id = gone.run_id
