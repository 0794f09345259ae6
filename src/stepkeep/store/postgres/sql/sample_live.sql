-- Read some of the unfinished runs of a tenant: those of the newest, up to a limit, whose ids end in a byte below a
-- number. The end of an id is random. The index alone chooses them.
with chosen (id) as materialized (
    select newest.id
    from (select id from runs where tenant = $1 and ended_at is null order by runs.id desc limit $3::int) as newest
    where get_byte(uuid_send(newest.id), 15) < $2::int
)
select runs.id::text, runs.definition_id, runs.state, runs.category, runs.started_at, runs.ended_at
from chosen
cross join lateral (select * from runs where runs.tenant = $1 and runs.id = chosen.id offset 0) as runs
order by runs.id desc
