-- Read the evidence of all attempts of a run, by step and fence.
select no, fence, body
from attempt_evidence
where tenant = $1 and run_id = $2::uuid
order by no, fence
