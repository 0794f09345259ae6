-- Note the end of a run for the triggers that are about its workflow. ?3 is the time.
insert into firings (tenant, trigger_name, moment, due_at, state, watched, made_at, depth, source)
select triggers.tenant, triggers.name, ?2, ?3, 'awaiting', 1, ?3, 0, ?2
from run_details as details
cross join triggers on triggers.tenant = details.tenant and triggers.topic = details.workflow
where details.tenant = ?1 and details.run_id = ?2 and triggers.kind = 'ended' and triggers.removed_at is null
on conflict (tenant, trigger_name, moment) do nothing
