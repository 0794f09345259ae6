-- Read the decisions of a run.
select tenant, run_id::text, no, activation, person, on_behalf_of, level, decision, at, comment, evidence, key_id,
    delegation_id, held_roles, vouched_by, shown_digest
from decisions
where tenant = $1 and run_id = $2
order by no, activation, at, person
