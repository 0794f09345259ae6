-- Insert business keys of new runs; in key order, so that two transactions cannot deadlock.
insert into business_keys (tenant, key, run_id)
select *
from unnest($1::text::text[], $2::text[], $3::text::uuid[]) as taken (tenant, key)
order by taken.tenant, taken.key
