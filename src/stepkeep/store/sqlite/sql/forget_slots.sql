-- Delete the slots of runs that have ended: of those that held one, and of these. ?2 is JSON: [run id, ...].
delete from slots
where tenant = ?1 and (granted_at is not null or run_id in (select value from json_each(?2)))
    and exists (
        select 1 from runs
        where runs.tenant = slots.tenant and runs.id = slots.run_id and runs.ended_at is not null)
returning run_id
