-- Write down what the outside world is to be told.
insert into outbox (tenant, run_id, seq, number, name, payload, created_at)
select *
from unnest(
    $1::text::text[], $2::text::uuid[], $3::text::bigint[], $4::text::int[], $5::text[], $6::bytea[],
    $7::text::bigint[])
