-- Read the states of runs, with the definition, the error and the last journal entry of each.
select runs.tenant, runs.id::text, runs.state, runs.definition_id, runs.error, runs.seq
from unnest($1::text[], $2::text::uuid[]) as wanted (tenant, run_id)
join runs on runs.tenant = wanted.tenant and runs.id = wanted.run_id
