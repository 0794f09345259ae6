-- A rerun keeps the names of the people who asked for the runs that it repeats: these may be deleted before it ends.

alter table run_details add column asked_before bytea;

with recursive repeated (tenant, run_id, before, person) as (
    select tenant, run_id, rerun_of, null::text from run_details where rerun_of is not null
    union
    select repeated.tenant, repeated.run_id, old.rerun_of, old.created_by
    from repeated
    join run_details as old on old.tenant = repeated.tenant and old.run_id = repeated.before
),
asked as (
    select tenant, run_id, jsonb_agg(distinct person)::text as names
    from repeated
    where person is not null
    group by tenant, run_id
)
update run_details
set asked_before = convert_to(asked.names, 'UTF8')
from asked
where run_details.tenant = asked.tenant and run_details.run_id = asked.run_id;

comment on column run_details.asked_before is
    'The people who asked for the runs that it repeats, as a JSON list; null if it repeats none';
