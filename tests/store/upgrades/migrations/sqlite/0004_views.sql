-- For people: views with timestamps (UTC), names and JSON, with the names and columns of those at PostgreSQL. The engine
-- reads none of them. JSON is text here; the functions and operators of SQLite take it apart.

create view run_view as
select
    runs.tenant,
    runs.id as run_id,
    details.workflow,
    details.version,
    runs.state,
    runs.cause,
    runs.category,
    runs.error,
    runs.rollback,
    runs.priority,
    details.business_key,
    details.correlation_id,
    details.rerun_of,
    details.created_by,
    strftime('%Y-%m-%dT%H:%M:%fZ', details.created_at / 1000000.0, 'unixepoch') as created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', runs.started_at / 1000000.0, 'unixepoch') as started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', runs.moved_at / 1000000.0, 'unixepoch') as changed_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', runs.due_at / 1000000.0, 'unixepoch') as due_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', runs.ended_at / 1000000.0, 'unixepoch') as ended_at,
    runs.open as open_steps,
    runs.leased as held_steps,
    runs.inbox as unread_messages,
    runs.seq as journal_entries,
    exists (
        select 1 from quarantine
        where quarantine.tenant = runs.tenant and quarantine.run_id = runs.id and quarantine.released_at is null
    ) as is_quarantined,
    cast(details.input as text) as input,
    cast(details.labels as text) as labels
from runs
join run_details as details on details.tenant = runs.tenant and details.run_id = runs.id;

-- The names of all numbered steps of a definition: main steps, undo hooks, final check.

create view step_name_view as
with main as (
    select
        definitions.id as definition_id,
        step.value ->> 'name' as name,
        row_number() over (
            partition by definitions.id order by step.value ->> 'order', step.value ->> 'name') - 1 as no,
        count(*) over (partition by definitions.id) as size
    from definitions, json_each(cast(definitions.document as text), '$.steps') as step
)
select definition_id, no, name from main
union all
select definition_id, size + no, 'undo:' || name from main
union all
select definition_id, 2 * size, 'check:run' from main where no = 0;

create view step_view as
select
    steps.tenant,
    steps.run_id,
    steps.no,
    named.name,
    steps.state,
    steps.category,
    steps.error,
    workers.id as worker,
    steps.fence,
    steps.attempts as failed_attempts,
    steps.losses as lost_attempts,
    steps.unmet as unmet_dependencies,
    strftime('%Y-%m-%dT%H:%M:%fZ', steps.ready_at / 1000000.0, 'unixepoch') as ready_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', steps.claimed_at / 1000000.0, 'unixepoch') as claimed_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', steps.due_at / 1000000.0, 'unixepoch') as due_at,
    queues.spec as queue,
    json_remove(steps.note, '$.token') as note
from steps
join runs on runs.tenant = steps.tenant and runs.id = steps.run_id
left join step_name_view as named on named.definition_id = runs.definition_id and named.no = steps.no
left join queues on queues.id = steps.queue
left join workers on workers.no = steps.worker;

create view attempt_view as
select
    attempts.tenant,
    attempts.run_id,
    attempts.no,
    named.name,
    attempts.number,
    attempts.fence,
    attempts.state,
    attempts.category,
    attempts.error,
    workers.id as worker,
    strftime('%Y-%m-%dT%H:%M:%fZ', attempts.started_at / 1000000.0, 'unixepoch') as started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', attempts.ended_at / 1000000.0, 'unixepoch') as ended_at,
    (attempts.ended_at - attempts.started_at) / 1000000.0 as seconds,
    cast(attempts.output as text) as output,
    cast(attempts.cost as text) as cost
from attempts
join runs on runs.tenant = attempts.tenant and runs.id = attempts.run_id
left join step_name_view as named on named.definition_id = runs.definition_id and named.no = attempts.no
left join workers on workers.no = attempts.worker;

-- One row for each change of state. `step` is null where the run itself changed.

create view journal_view as
select
    journal.tenant,
    journal.run_id,
    journal.seq,
    hop.key + 1 as place,
    strftime('%Y-%m-%dT%H:%M:%fZ', journal.at / 1000000.0, 'unixepoch') as at,
    cast(journal.body as text) ->> ('$.causes[' || ifnull(hop.value ->> 'by', 0) || '].event') as event,
    cast(journal.body as text) ->> ('$.causes[' || ifnull(hop.value ->> 'by', 0) || '].actor') as actor,
    named.name as step,
    hop.value ->> 'trigger' as trigger,
    hop.value ->> 'from' as from_state,
    hop.value ->> 'to' as to_state,
    hop.value ->> 'attempt' as attempt,
    hop.value ->> 'category' as category,
    hop.value ->> 'error' as error,
    cast(journal.body as text) -> ('$.causes[' || ifnull(hop.value ->> 'by', 0) || '].detail') as detail
from journal
join runs on runs.tenant = journal.tenant and runs.id = journal.run_id
join json_each(cast(journal.body as text), '$.hops') as hop
left join step_name_view as named on named.definition_id = runs.definition_id and named.no = hop.value ->> 'no';

create view worker_view as
select
    tenant,
    id as worker,
    no,
    state,
    incarnation,
    capacity,
    strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000000.0, 'unixepoch') as started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', heard_at / 1000000.0, 'unixepoch') as heard_at,
    capabilities,
    queues
from workers;
