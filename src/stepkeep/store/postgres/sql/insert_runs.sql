-- Insert runs that come into being, with what they were given; their steps and journal follow in the same transaction.
with new_details as (
    insert into run_details (
        tenant, run_id, workflow, version, dialect, input, correlation_id, created_at, created_by, business_key,
        rerun_of, labels)
    select *
    from unnest(
        $1::text[], $2::uuid[], $23::text[], $24::text::int[], $25::text[], $26::bytea[], $27::text[],
        $28::text::bigint[], $29::text[], $30::text[], $31::uuid[], $32::bytea[])
)
insert into runs (
    tenant, id, definition_id, state, priority, seq, head, open, moving, leased, failed, undoing, inbox, cause, policy,
    category, error, rollback, due_at, started_at, ended_at, business_key)
select *
from unnest(
    $1::text[], $2::uuid[], $3::text::int[],
    $4::text::text[], $5::text::int[], $6::text::bigint[], $7::bytea[], $8::text::int[], $9::text::int[],
    $10::text::int[], $11::text::int[], $12::text::int[], $13::text::int[], $14::text::text[], $15::text::text[],
    $16::text::text[], $17::text[], $18::text::text[], $19::text::bigint[], $20::text::bigint[],
    $21::text::bigint[], $22::text[])
