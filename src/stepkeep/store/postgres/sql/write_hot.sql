-- Write the rows of nearly every transaction: runs that are at their expected journal sequence, their steps, attempts
-- and journal entries, and steps that are new ($15): elements, undo steps and final checks.
--
-- All rows are of one tenant, $2. The rows of a table are sent as one array of numbers, row after row. A number may
-- refer to a run ($3), a word ($4) or a part of the bytes ($1); -1 means none. If the runs are not locked, $9 requires
-- that each is found unchanged and that every overwritten lease is still valid. The notification $14, if there is one,
-- is sent with it on the channel $13.
with given as materialized (
    select $2::text as tenant, $3::text::uuid[] as run, $4::text::text[] as word, $5::text::bigint[] as runs
),
changed_runs as (
    update runs
    set state = changed.state, priority = changed.priority, seq = changed.seq, head = changed.head,
        open = changed.open, moving = changed.moving, leased = changed.leased, failed = changed.failed,
        undoing = changed.undoing, inbox = changed.inbox, cause = changed.cause, policy = changed.policy,
        category = changed.category, error = changed.error, rollback = changed.rollback, due_at = changed.due_at,
        started_at = changed.started_at, ended_at = changed.ended_at, business_key = changed.business_key,
        moved_at = changed.moved_at
    from (
        select $2::text as tenant, run[n[i + 1]] as id, n[i + 2] as was, word[n[i + 3]] as state, n[i + 4]::int as priority,
            n[i + 5] as seq, stepkeep_part($1, n[i + 6]) as head, n[i + 7]::int as open, n[i + 8]::int as moving,
            n[i + 9]::int as leased, n[i + 10]::int as failed, n[i + 11]::int as undoing, n[i + 12]::int as inbox,
            word[n[i + 13]] as cause, word[n[i + 14]] as policy, word[n[i + 15]] as category,
            stepkeep_text($1, n[i + 16]) as error, word[n[i + 17]] as rollback, nullif(n[i + 18], -1) as due_at,
            nullif(n[i + 19], -1) as started_at, nullif(n[i + 20], -1) as ended_at,
            stepkeep_text($1, n[i + 21]) as business_key, n[i + 22] as moved_at
        from (select tenant, run, word, runs as n from given offset 0) as given
        cross join generate_series(0, cardinality(n) - 1, 22) as i
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
    set queue = changed.queue, priority = changed.priority, state = changed.state, ready_at = changed.ready_at,
        due_at = changed.due_at, fence = changed.fence, worker = changed.worker, claimed_at = changed.claimed_at,
        attempts = changed.attempts, losses = changed.losses, unmet = changed.unmet, settled = changed.settled,
        category = changed.category, error = changed.error, note = changed.note
    from (
        select $2::text as tenant, run[n[i + 1]] as run_id, n[i + 2]::int as no, n[i + 3]::int as queue, n[i + 4]::int as priority,
            word[n[i + 5]] as state, nullif(n[i + 6], -1) as ready_at, nullif(n[i + 7], -1) as due_at,
            n[i + 8]::int as fence, nullif(n[i + 9], -1)::int as worker, nullif(n[i + 10], -1) as claimed_at,
            n[i + 11]::int as attempts, n[i + 12]::int as losses, n[i + 13]::int as unmet,
            nullif(n[i + 14], -1) as settled, word[n[i + 15]] as category, stepkeep_text($1, n[i + 16]) as error,
            stepkeep_text($1, n[i + 17]) as note
        from (select run, word, $6::text::bigint[] as n from given offset 0) as given
        cross join generate_series(0, cardinality(n) - 1, 17) as i
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
    insert into attempts (
        tenant, run_id, no, fence, number, state, worker, started_at, ended_at, category, error, output, cost)
    select $2::text, run[n[i + 1]], n[i + 2], n[i + 3], n[i + 4], word[n[i + 5]], n[i + 6], n[i + 7], n[i + 8],
        word[n[i + 9]], stepkeep_text($1, n[i + 10]), stepkeep_part($1, n[i + 11]), stepkeep_part($1, n[i + 12])
    from (select run, word, $7::text::bigint[] as n from given offset 0) as given
    cross join generate_series(0, cardinality(n) - 1, 12) as i
),
new_entries as (
    insert into journal (tenant, run_id, seq, at, body, hash)
    select $2::text, run[n[i + 1]], n[i + 2], n[i + 3], stepkeep_part($1, n[i + 4]), stepkeep_part($1, n[i + 5])
    from (select run, $8::text::bigint[] as n from given offset 0) as given
    cross join generate_series(0, cardinality(n) - 1, 5) as i
),
new_steps as (
    insert into steps (
        tenant, run_id, no, queue, priority, state, ready_at, due_at, fence, worker, claimed_at, attempts, losses, unmet,
        settled, category, error, note)
    select $2::text, run[n[i + 1]], n[i + 2], n[i + 3], n[i + 4], word[n[i + 5]], nullif(n[i + 6], -1),
        nullif(n[i + 7], -1), n[i + 8], nullif(n[i + 9], -1), nullif(n[i + 10], -1), n[i + 11], n[i + 12], n[i + 13],
        nullif(n[i + 14], -1), word[n[i + 15]], stepkeep_text($1, n[i + 16]), stepkeep_text($1, n[i + 17])
    from (select run, word, $15::text::bigint[] as n from given offset 0) as given
    cross join generate_series(0, cardinality(n) - 1, 17) as i
),
moved as materialized (
    select tenant, run[n[i + 1]] as run_id, n[i + 5] as seq, n[i + 20] <> -1 as has_ended
    from (select tenant, run, runs as n from given offset 0) as given
    cross join generate_series(0, cardinality(n) - 1, 22) as i
),
-- part: heard
select runs, steps, now, stepkeep_met($9::boolean and (runs < $11::int or steps < $12::int)),
    case when $14::text is not null then pg_notify($13::text, $14::text) end
from clock cross join (select count(*) as steps from changed_steps) as found
