-- Write what `write_hot` writes, with the same parameters, if only hot columns change and no attempt has failed: half
-- of the columns to send, read and write.
with given as materialized (
    select $2::text as tenant, $3::text::uuid[] as run, $4::text::text[] as word, $5::text::bigint[] as runs
),
changed_runs as (
    update runs
    set state = changed.state, seq = changed.seq, head = changed.head, open = changed.open, moving = changed.moving,
        leased = changed.leased, due_at = changed.due_at, ended_at = changed.ended_at, moved_at = changed.moved_at
    from (
        select $2::text as tenant, run[n[i + 1]] as id, n[i + 2] as was, word[n[i + 3]] as state, n[i + 4] as seq,
            stepkeep_part($1, n[i + 5]) as head, n[i + 6]::int as open, n[i + 7]::int as moving,
            n[i + 8]::int as leased, nullif(n[i + 9], -1) as due_at, nullif(n[i + 10], -1) as ended_at,
            n[i + 11] as moved_at
        from (select tenant, run, word, runs as n from given offset 0) as given
        cross join generate_series(0, cardinality(n) - 1, 11) as i
        where ($2::text, run[n[i + 1]]) not in (select tenant, run_id from quarantine where released_at is null)
        offset 0
    ) as changed
    where runs.tenant = changed.tenant and runs.id = changed.id and runs.seq = changed.was
    returning 1
),
clock as materialized (
    select count(*) as runs, stepkeep_now() + $10::bigint as now from changed_runs
),
changed_steps as (
    update steps
    set state = changed.state, ready_at = changed.ready_at, due_at = changed.due_at, fence = changed.fence,
        worker = changed.worker, claimed_at = changed.claimed_at, unmet = changed.unmet, settled = changed.settled
    from (
        select $2::text as tenant, run[n[i + 1]] as run_id, n[i + 2]::int as no, word[n[i + 3]] as state,
            nullif(n[i + 4], -1) as ready_at, nullif(n[i + 5], -1) as due_at, n[i + 6]::int as fence,
            nullif(n[i + 7], -1)::int as worker, nullif(n[i + 8], -1) as claimed_at, n[i + 9]::int as unmet,
            nullif(n[i + 10], -1) as settled
        from (select run, word, $6::text::bigint[] as n from given offset 0) as given
        cross join generate_series(0, cardinality(n) - 1, 10) as i
        offset 0
    ) as changed
    where steps.tenant = changed.tenant and steps.run_id = changed.run_id and steps.no = changed.no
        and (
            not $9::boolean
            or ((select runs from clock) = $11::int and (steps.worker is null or steps.due_at >= (select now from clock)))
        )
    returning 1
),
new_attempts as (
    insert into attempts (tenant, run_id, no, fence, number, state, worker, started_at, ended_at, output, cost)
    select $2::text, run[n[i + 1]], n[i + 2], n[i + 3], n[i + 4], word[n[i + 5]], n[i + 6], n[i + 7], n[i + 8],
        stepkeep_part($1, n[i + 9]), stepkeep_part($1, n[i + 10])
    from (select run, word, $7::text::bigint[] as n from given offset 0) as given
    cross join generate_series(0, cardinality(n) - 1, 10) as i
),
new_entries as (
    insert into journal (tenant, run_id, seq, at, body, hash)
    select $2::text, run[n[i + 1]], n[i + 2], n[i + 3], stepkeep_part($1, n[i + 4]), stepkeep_part($1, n[i + 5])
    from (select run, $8::text::bigint[] as n from given offset 0) as given
    cross join generate_series(0, cardinality(n) - 1, 5) as i
),
moved as materialized (
    select tenant, run[n[i + 1]] as run_id, n[i + 4] as seq, n[i + 10] <> -1 as has_ended
    from (select tenant, run, runs as n from given offset 0) as given
    cross join generate_series(0, cardinality(n) - 1, 11) as i
),
-- part: heard
select runs, steps, now, stepkeep_met($9::boolean and (runs < $11::int or steps < $12::int)),
    case when $14::text is not null then pg_notify($13::text, $14::text) end
from clock cross join (select count(*) as steps from changed_steps) as found
