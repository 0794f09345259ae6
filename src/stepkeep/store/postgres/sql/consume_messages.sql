-- Mark messages as consumed, each once.
update messages
set consumed_by = taken.consumed_by
from unnest($1::text::text[], $2::text::uuid[], $3::text[], $4::text::int[]) as taken (tenant, run_id, id, consumed_by)
where messages.tenant = taken.tenant and messages.run_id = taken.run_id and messages.id = taken.id
    and messages.consumed_by is null
returning 1
