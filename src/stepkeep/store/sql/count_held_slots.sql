-- Count the slots of a tenant that are held, by workflow: granted ones whose run has not ended.
select slots.workflow, count(*)
from slots join runs on runs.tenant = slots.tenant and runs.id = slots.run_id
where slots.tenant = $1 and slots.granted_at is not null and runs.ended_at is null
group by slots.workflow
