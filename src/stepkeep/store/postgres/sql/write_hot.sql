-- Write what nearly every transaction writes: runs found where they were left, their steps, attempts and journal.
with changed_runs as (
    update runs
    set state = changed.state, priority = changed.priority, seq = changed.seq, head = changed.head,
        open = changed.open, moving = changed.moving, leased = changed.leased, failed = changed.failed,
        undoing = changed.undoing, inbox = changed.inbox, cause = changed.cause, policy = changed.policy,
        category = changed.category, error = changed.error, rollback = changed.rollback, due_at = changed.due_at,
        started_at = changed.started_at, ended_at = changed.ended_at, business_key = changed.business_key
    from unnest(
        $1::text[], $2::uuid[], $3::text::bigint[],
        $4::text::text[], $5::text::int[], $6::text::bigint[], $7::bytea[], $8::text::int[], $9::text::int[],
        $10::text::int[], $11::text::int[], $12::text::int[], $13::text::int[], $14::text::text[], $15::text::text[],
        $16::text::text[], $17::text[], $18::text::text[], $19::text::bigint[], $20::text::bigint[],
        $21::text::bigint[], $22::text[]
    ) as changed (
        tenant, id, was,
        state, priority, seq, head, open, moving,
        leased, failed, undoing, inbox, cause, policy,
        category, error, rollback, due_at, started_at,
        ended_at, business_key)
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
        $23::text[], $24::uuid[], $25::text::int[],
        $26::text::int[], $27::text::int[], $28::text::text[], $29::text::bigint[], $30::text::bigint[],
        $31::text::int[], $32::text::int[], $33::text::bigint[], $34::text::int[], $35::text::int[],
        $36::text::int[], $37::text::bigint[], $38::text::text[], $39::text[], $40::text[]
    ) as changed (
        tenant, run_id, no,
        queue, priority, state, ready_at, due_at,
        fence, worker, claimed_at, attempts, losses,
        unmet, settled, category, error, note)
    where steps.tenant = changed.tenant and steps.run_id = changed.run_id and steps.no = changed.no
    returning 1
),
new_attempts as (
    insert into attempts (
        tenant, run_id, no, fence, number, state, worker, started_at, ended_at, category, error, output, cost)
    select *
    from unnest(
        $41::text[], $42::uuid[], $43::text::int[], $44::text::int[], $45::text::int[], $46::text::text[],
        $47::text::int[], $48::text::bigint[], $49::text::bigint[], $50::text::text[], $51::text[], $52::bytea[],
        $53::bytea[])
),
new_entries as (
    insert into journal (tenant, run_id, seq, at, body, hash)
    select *
    from unnest($54::text[], $55::uuid[], $56::text::bigint[], $57::text::bigint[], $58::bytea[], $59::bytea[])
)
select (select count(*) from changed_runs) as runs, (select count(*) from changed_steps) as steps
