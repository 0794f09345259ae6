-- Read how the newest runs of a tenant went: those after an id, newest first, up to a limit.
select id::text, definition_id, state, category, started_at, ended_at
from runs
where tenant = $1 and id > $2::uuid
order by runs.id desc
limit $3
