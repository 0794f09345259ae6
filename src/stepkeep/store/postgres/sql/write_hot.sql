-- Write what nearly every transaction writes: runs found where they were left, their steps, attempts and journal.
-- $1 holds all bytes; columns that end in `_from` and `_for` say which part is theirs.
with changed_runs as (
    update runs
    set state = changed.state, priority = changed.priority, seq = changed.seq,
        head = substring($1::bytea from changed.head_from for changed.head_for),
        open = changed.open, moving = changed.moving, leased = changed.leased, failed = changed.failed,
        undoing = changed.undoing, inbox = changed.inbox, cause = changed.cause, policy = changed.policy,
        category = changed.category, error = changed.error, rollback = changed.rollback, due_at = changed.due_at,
        started_at = changed.started_at, ended_at = changed.ended_at, business_key = changed.business_key,
        moved_at = changed.moved_at
    from unnest(
        $2::text::bigint[], $3::text::text[], $4::text::uuid[], $5::text::text[], $6::text::int[],
        $7::text::bigint[], $8::text::int[], $9::text::int[], $10::text::int[], $11::text::int[],
        $12::text::int[], $13::text::int[], $14::text::int[], $15::text::int[], $16::text::text[],
        $17::text::text[], $18::text::text[], $19::text[], $20::text::text[], $21::text::bigint[],
        $22::text::bigint[], $23::text::bigint[], $24::text[], $25::text::bigint[]
    ) as changed (
        was, tenant, id, state, priority, seq, head_from, head_for, open, moving, leased, failed, undoing,
        inbox, cause, policy, category, error, rollback, due_at, started_at, ended_at, business_key, moved_at)
    where runs.tenant = changed.tenant and runs.id = changed.id and runs.seq = changed.was
    returning 1
),
changed_steps as (
    update steps
    set queue = changed.queue, priority = changed.priority, state = changed.state, ready_at = changed.ready_at,
        due_at = changed.due_at, fence = changed.fence, worker = changed.worker, claimed_at = changed.claimed_at,
        attempts = changed.attempts, losses = changed.losses, unmet = changed.unmet, settled = changed.settled,
        category = changed.category, error = changed.error, note = changed.note
    from unnest(
        $26::text::text[], $27::text::uuid[], $28::text::int[], $29::text::int[], $30::text::int[],
        $31::text::text[], $32::text::bigint[], $33::text::bigint[], $34::text::int[], $35::text::int[],
        $36::text::bigint[], $37::text::int[], $38::text::int[], $39::text::int[], $40::text::bigint[],
        $41::text::text[], $42::text[], $43::text[]
    ) as changed (
        tenant, run_id, no, queue, priority, state, ready_at, due_at, fence, worker, claimed_at, attempts,
        losses, unmet, settled, category, error, note)
    where steps.tenant = changed.tenant and steps.run_id = changed.run_id and steps.no = changed.no
    returning 1
),
new_attempts as (
    insert into attempts (
        tenant, run_id, no, fence, number, state, worker, started_at, ended_at, category, error, output, cost)
    select tenant, run_id, no, fence, number, state, worker, started_at, ended_at, category, error,
        substring($1::bytea from output_from for output_for), substring($1::bytea from cost_from for cost_for)
    from unnest(
        $44::text::text[], $45::text::uuid[], $46::text::int[], $47::text::int[], $48::text::int[],
        $49::text::text[], $50::text::int[], $51::text::bigint[], $52::text::bigint[], $53::text::text[],
        $54::text[], $55::text::int[], $56::text::int[], $57::text::int[], $58::text::int[]
    ) as ended (
        tenant, run_id, no, fence, number, state, worker, started_at, ended_at, category, error, output_from,
        output_for, cost_from, cost_for)
),
new_entries as (
    insert into journal (tenant, run_id, seq, at, body, hash)
    select tenant, run_id, seq, at, substring($1::bytea from body_from for body_for),
        substring($1::bytea from hash_from for hash_for)
    from unnest(
        $59::text::text[], $60::text::uuid[], $61::text::bigint[], $62::text::bigint[], $63::text::int[],
        $64::text::int[], $65::text::int[], $66::text::int[]
    ) as entry (
        tenant, run_id, seq, at, body_from, body_for, hash_from, hash_for)
)
select (select count(*) from changed_runs) as runs, (select count(*) from changed_steps) as steps
