-- Read how the attempts of these runs went, up to a limit. $2 is JSON: [run id, ...].
select wanted.id, attempt.no, attempt.state, attempt.ended_at - attempt.started_at
from json_array_elements_text($2::text::json) as wanted (id)
cross join lateral (
    select no, fence, state, started_at, ended_at
    from attempts
    where attempts.run_id = wanted.id::uuid and attempts.tenant = $1
    offset 0
) as attempt
order by wanted.id desc, attempt.no, attempt.fence
limit $3
