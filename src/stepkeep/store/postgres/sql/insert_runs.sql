-- Insert new runs with their details, all their steps, the first entries of their journal, and the delivery cursors of
-- sinks that take more than what a run emits; and note those that end at once for triggers. The parameters are like
-- those of `write_hot`. On a basis without locks, $9 is their start time, which must not be in the future. The
-- notification $12, if there is one, is sent with it on the channel $11.
with new_details as (
    insert into run_details (
        tenant, run_id, workflow, version, dialect, input, correlation_id, created_at, created_by, business_key,
        rerun_of, labels, asked_before, policy_revision)
    select $2::text, run[n[i + 1]], stepkeep_text($1, n[i + 2]), n[i + 3], stepkeep_text($1, n[i + 4]),
        stepkeep_part($1, n[i + 5]), stepkeep_text($1, n[i + 6]), n[i + 7], stepkeep_text($1, n[i + 8]),
        stepkeep_text($1, n[i + 9]), run[n[i + 10]], stepkeep_part($1, n[i + 11]),
        stepkeep_part($1, n[i + 12]), nullif(n[i + 13], -1)
    from (select $3::text::uuid[] as run, $6::text::bigint[] as n offset 0) as given
    cross join generate_series(0, cardinality(n) - 1, 13) as i
),
new_steps as (
    insert into steps (
        tenant, run_id, no, queue, priority, state, ready_at, due_at, fence, worker, claimed_at, attempts, losses,
        unmet, settled, category, error, note)
    select $2::text, run[n[i + 1]], n[i + 2], n[i + 3], n[i + 4], word[n[i + 5]], nullif(n[i + 6], -1),
        nullif(n[i + 7], -1), n[i + 8], nullif(n[i + 9], -1), nullif(n[i + 10], -1), n[i + 11], n[i + 12],
        n[i + 13], nullif(n[i + 14], -1), word[n[i + 15]], stepkeep_text($1, n[i + 16]),
        stepkeep_text($1, n[i + 17])
    from (select $3::text::uuid[] as run, $4::text::text[] as word, $7::text::bigint[] as n offset 0) as given
    cross join generate_series(0, cardinality(n) - 1, 17) as i
),
new_entries as (
    insert into journal (tenant, run_id, seq, at, body, hash)
    select $2::text, run[n[i + 1]], n[i + 2], n[i + 3], stepkeep_part($1, n[i + 4]), stepkeep_part($1, n[i + 5])
    from (select $3::text::uuid[] as run, $8::text::bigint[] as n offset 0) as given
    cross join generate_series(0, cardinality(n) - 1, 5) as i
),
new_runs as (
    insert into runs (
        tenant, id, definition_id, state, priority, seq, head, open, moving, leased, failed, undoing, inbox, cause,
        policy, category, error, rollback, due_at, started_at, ended_at, business_key, moved_at)
    select $2::text, run[n[i + 1]], n[i + 2], word[n[i + 3]], n[i + 4], n[i + 5], stepkeep_part($1, n[i + 6]),
        n[i + 7], n[i + 8], n[i + 9], n[i + 10], n[i + 11], n[i + 12], word[n[i + 13]], word[n[i + 14]],
        word[n[i + 15]], stepkeep_text($1, n[i + 16]), word[n[i + 17]], nullif(n[i + 18], -1), nullif(n[i + 19], -1),
        nullif(n[i + 20], -1), stepkeep_text($1, n[i + 21]), n[i + 22]
    from (select $3::text::uuid[] as run, $4::text::text[] as word, $5::text::bigint[] as n offset 0) as given
    cross join generate_series(0, cardinality(n) - 1, 22) as i
),
new_deliveries as (
    insert into deliveries (tenant, run_id, sink, takes, last, sent, sent_number, ready_at)
    select sinks.tenant, run[n[i + 1]], sinks.name, sinks.takes & 15,
        case when sinks.takes & 6 <> 0 or n[i + 20] <> -1 then n[i + 5] else 0 end, 0, 2147483647,
        case when sinks.takes & 6 <> 0 or n[i + 20] <> -1 then stepkeep_now() + $10::bigint end
    from (select $3::text::uuid[] as run, $5::text::bigint[] as n offset 0) as given
    cross join generate_series(0, cardinality(n) - 1, 22) as i
    cross join sinks
    where sinks.tenant = $2::text and sinks.takes & 14 <> 0
),
noted as (
    insert into firings (tenant, trigger_name, moment, due_at, state, watched, made_at, depth, source)
    select triggers.tenant, triggers.name, ended.run_id::text, now, 'awaiting', 1, now, 0, ended.run_id::text
    from (
        select run[n[i + 1]] as run_id, stepkeep_text($1, m[(i / 22) * 13 + 2]) as workflow,
            stepkeep_now() + $10::bigint as now
        from (
            select $3::text::uuid[] as run, $5::text::bigint[] as n, $6::text::bigint[] as m offset 0
        ) as given
        cross join generate_series(0, cardinality(n) - 1, 22) as i
        where n[i + 20] <> -1
        offset 0
    ) as ended
    join triggers on triggers.tenant = $2::text and triggers.topic = ended.workflow
    where triggers.kind = 'ended' and triggers.removed_at is null
    order by ended.run_id, triggers.name
    on conflict (tenant, trigger_name, moment) do nothing
)
select now, stepkeep_met(now < $9::bigint), case when $12::text is not null then pg_notify($11::text, $12::text) end
from (select stepkeep_now() + $10::bigint as now offset 0) as clock
