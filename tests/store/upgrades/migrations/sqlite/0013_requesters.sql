-- A rerun keeps the names of the people who asked for the runs that it repeats: these may be deleted before it ends.

alter table run_details add column asked_before blob;

with recursive repeated (tenant, run_id, before, person) as (
    select tenant, run_id, rerun_of, null from run_details where rerun_of is not null
    union
    select repeated.tenant, repeated.run_id, old.rerun_of, old.created_by
    from repeated
    join run_details as old on old.tenant = repeated.tenant and old.run_id = repeated.before
),
asked as (
    select tenant, run_id, json_group_array(distinct person) as names
    from repeated
    where person is not null
    group by tenant, run_id
)
update run_details
set asked_before = cast(asked.names as blob)
from asked
where run_details.tenant = asked.tenant and run_details.run_id = asked.run_id;
