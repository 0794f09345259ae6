-- Insert runs that come into being, with what they were given; their steps and journal follow in the same transaction.
-- $1 holds all bytes; columns that end in `_from` and `_for` say which part is theirs.
with new_details as (
    insert into run_details (
        tenant, run_id, workflow, version, dialect, input, correlation_id, created_at, created_by, business_key,
        rerun_of, labels)
    select tenant, run_id, workflow, version, dialect, substring($1::bytea from input_from for input_for),
        correlation_id, created_at, created_by, business_key, rerun_of,
        substring($1::bytea from labels_from for labels_for)
    from unnest(
        $3::text::text[], $4::text::uuid[], $26::text[], $27::text::int[], $28::text[], $29::text::int[],
        $30::text::int[], $31::text[], $32::text::bigint[], $33::text[], $34::text[], $35::text::uuid[],
        $36::text::int[], $37::text::int[]
    ) as given (
        tenant, run_id, workflow, version, dialect, input_from, input_for, correlation_id, created_at,
        created_by, business_key, rerun_of, labels_from, labels_for)
)
insert into runs (
    tenant, id, definition_id, state, priority, seq, head, open, moving, leased, failed, undoing, inbox, cause, policy,
    category, error, rollback, due_at, started_at, ended_at, business_key, moved_at)
select tenant, id, definition_id, state, priority, seq, substring($1::bytea from head_from for head_for), open, moving,
    leased, failed, undoing, inbox, cause, policy, category, error, rollback, due_at, started_at, ended_at,
    business_key, moved_at
from unnest(
    $2::text::int[], $3::text::text[], $4::text::uuid[], $5::text::text[], $6::text::int[], $7::text::bigint[],
    $8::text::int[], $9::text::int[], $10::text::int[], $11::text::int[], $12::text::int[], $13::text::int[],
    $14::text::int[], $15::text::int[], $16::text::text[], $17::text::text[], $18::text::text[], $19::text[],
    $20::text::text[], $21::text::bigint[], $22::text::bigint[], $23::text::bigint[], $24::text[],
    $25::text::bigint[]
) as run (
    definition_id, tenant, id, state, priority, seq, head_from, head_for, open, moving, leased, failed,
    undoing, inbox, cause, policy, category, error, rollback, due_at, started_at, ended_at, business_key, moved_at)
