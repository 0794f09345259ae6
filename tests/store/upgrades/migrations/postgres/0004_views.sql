-- For people: views with timestamps, names and JSON, and a comment on every table and column. The engine reads none of
-- them. And a lock timeout for the functions that change the parts of the journal, also when they are called by hand.

alter function stepkeep_extend_journal(integer) set lock_timeout = '200ms';
alter function stepkeep_drop_empty_weeks() set lock_timeout = '200ms';

create function stepkeep_time(micros bigint) returns timestamptz language sql stable strict parallel safe
    return timestamptz 'epoch' + micros * interval '1 microsecond';

-- Bytes of JSON as jsonb. What jsonb cannot hold, such as a text with \u0000 in it, becomes a JSON string of the bytes.

create function stepkeep_json(document bytea) returns jsonb language plpgsql immutable strict as $$
begin
    return convert_from(document, 'UTF8')::jsonb;
exception when data_exception or program_limit_exceeded then
    return to_jsonb(encode(document, 'escape'));
end $$;

-- The names of a definition's steps: the step with number `no` is in place no + 1. Costly, so that the planner calls it
-- once per definition and not once per step.

create function stepkeep_step_names(document bytea) returns text[] language plpgsql immutable strict cost 100000 as $$
declare
    main text[];
begin
    select array_agg(step ->> 'name' order by (step ->> 'order')::numeric, step ->> 'name' collate "C") into main
    from jsonb_array_elements(stepkeep_json(document) -> 'steps') as step;
    return main || array(select 'undo:' || name from unnest(main) with ordinality as main(name, place) order by place)
        || array['check:run'];
end $$;

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
    stepkeep_time(details.created_at) as created_at,
    stepkeep_time(runs.started_at) as started_at,
    stepkeep_time(runs.moved_at) as changed_at,
    stepkeep_time(runs.due_at) as due_at,
    stepkeep_time(runs.ended_at) as ended_at,
    runs.open as open_steps,
    runs.leased as held_steps,
    runs.inbox as unread_messages,
    runs.seq as journal_entries,
    exists (
        select from quarantine
        where quarantine.tenant = runs.tenant and quarantine.run_id = runs.id and quarantine.released_at is null
    ) as is_quarantined,
    stepkeep_json(details.input) as input,
    stepkeep_json(details.labels) as labels
from runs
join run_details as details on details.tenant = runs.tenant and details.run_id = runs.id;

create view step_view as
select
    steps.tenant,
    steps.run_id,
    steps.no,
    named.names[steps.no + 1] as name,
    steps.state,
    steps.category,
    steps.error,
    workers.id as worker,
    steps.fence,
    steps.attempts as failed_attempts,
    steps.losses as lost_attempts,
    steps.unmet as unmet_dependencies,
    stepkeep_time(steps.ready_at) as ready_at,
    stepkeep_time(steps.claimed_at) as claimed_at,
    stepkeep_time(steps.due_at) as due_at,
    stepkeep_json(convert_to(queues.spec, 'UTF8')) as queue,
    stepkeep_json(convert_to(steps.note, 'UTF8')) - 'token' as note
from runs
join definitions on definitions.id = runs.definition_id
cross join lateral (select stepkeep_step_names(definitions.document) as names offset 0) as named
join steps on steps.run_id = runs.id and steps.tenant = runs.tenant
left join queues on queues.id = steps.queue
left join workers on workers.no = steps.worker;

create view attempt_view as
select
    attempts.tenant,
    attempts.run_id,
    attempts.no,
    named.names[attempts.no + 1] as name,
    attempts.number,
    attempts.fence,
    attempts.state,
    attempts.category,
    attempts.error,
    workers.id as worker,
    stepkeep_time(attempts.started_at) as started_at,
    stepkeep_time(attempts.ended_at) as ended_at,
    (attempts.ended_at - attempts.started_at) / 1000000.0 as seconds,
    stepkeep_json(attempts.output) as output,
    stepkeep_json(attempts.cost) as cost
from runs
join definitions on definitions.id = runs.definition_id
cross join lateral (select stepkeep_step_names(definitions.document) as names offset 0) as named
join attempts on attempts.run_id = runs.id and attempts.tenant = runs.tenant
left join workers on workers.no = attempts.worker;

-- One row for each change of state. `step` is null where the run itself changed.

create view journal_view as
select
    journal.tenant,
    journal.run_id,
    journal.seq,
    hop.place::integer as place,
    stepkeep_time(journal.at) as at,
    entry.body -> 'causes' -> coalesce((hop.value ->> 'by')::integer, 0) ->> 'event' as event,
    entry.body -> 'causes' -> coalesce((hop.value ->> 'by')::integer, 0) ->> 'actor' as actor,
    named.names[nullif((hop.value ->> 'no')::integer, -1) + 1] as step,
    hop.value ->> 'trigger' as trigger,
    hop.value ->> 'from' as from_state,
    hop.value ->> 'to' as to_state,
    (hop.value ->> 'attempt')::integer as attempt,
    hop.value ->> 'category' as category,
    hop.value ->> 'error' as error,
    entry.body -> 'causes' -> coalesce((hop.value ->> 'by')::integer, 0) -> 'detail' as detail
from runs
join definitions on definitions.id = runs.definition_id
cross join lateral (select stepkeep_step_names(definitions.document) as names offset 0) as named
join journal on journal.run_id = runs.id and journal.tenant = runs.tenant
cross join lateral (select stepkeep_json(journal.body) as body offset 0) as entry
cross join lateral jsonb_array_elements(entry.body -> 'hops') with ordinality as hop(value, place);

create view worker_view as
select
    tenant,
    id as worker,
    no,
    state,
    incarnation,
    capacity,
    stepkeep_time(started_at) as started_at,
    stepkeep_time(heard_at) as heard_at,
    stepkeep_json(convert_to(capabilities, 'UTF8')) as capabilities,
    stepkeep_json(convert_to(queues, 'UTF8')) as queues
from workers;

comment on view run_view is 'Runs, for people: timestamps, names and JSON';
comment on view step_view is 'Steps of runs, for people: timestamps, names and JSON';
comment on view attempt_view is 'Ended attempts of steps, for people: timestamps, names and JSON';
comment on view journal_view is 'Changes of state, for people: one row each, with its event and actor';
comment on view worker_view is 'Workers, for people: timestamps, names and JSON';

comment on table definitions is 'Published workflows; a published version never changes';
comment on column definitions.id is 'Number that runs refer to';
comment on column definitions.version is 'Version of the workflow, from 1';
comment on column definitions.published_at is 'When it was published (microseconds since 1970)';
comment on column definitions.tenant is 'Whose row this is; part of every key';
comment on column definitions.name is 'Name of the workflow';
comment on column definitions.dialect is 'Dialect it was written in';
comment on column definitions.digest is 'SHA-256 of the document';
comment on column definitions.document is 'The definition as canonical JSON';
comment on column definitions.queues is 'JSON list: the queue of each numbered step, 0 for none';
comment on column definitions.published_by is 'Actor that published it';

comment on table queues is 'Kinds of work: a worker claims steps by queue';
comment on column queues.id is 'Number that steps refer to';
comment on column queues.tenant is 'Whose row this is; part of every key';
comment on column queues.spec is 'What a worker must offer, as JSON';

comment on table runs is 'State of each run. Locking this row locks everything of the run; read run_view instead';
comment on column runs.tenant is 'Whose row this is; part of every key';
comment on column runs.id is 'Id of the run, a UUID that begins with its start time';
comment on column runs.definition_id is 'definitions.id';
comment on column runs.priority is 'Larger is claimed first';
comment on column runs.seq is 'Entries in its journal';
comment on column runs.due_at is 'Deadline of the run (microseconds since 1970)';
comment on column runs.started_at is 'When it left the state idle (microseconds since 1970)';
comment on column runs.ended_at is 'When it ended (microseconds since 1970); null while it has not';
comment on column runs.moved_at is 'Time of the latest journal entry (microseconds since 1970)';
comment on column runs.open is 'Main steps that have not ended';
comment on column runs.moving is 'Steps that can go on without a person or a message';
comment on column runs.leased is 'Steps that a worker holds';
comment on column runs.failed is 'Main steps that failed under the policy continue';
comment on column runs.undoing is 'Undo hooks that have not ended';
comment on column runs.inbox is 'Messages that are not consumed yet';
comment on column runs.state is 'State of the run';
comment on column runs.head is 'SHA-256 of the latest journal entry';
comment on column runs.cause is 'Why it stops or stopped: failure, timeout or cancel';
comment on column runs.policy is 'Failure policy that applies';
comment on column runs.category is 'Category of the error';
comment on column runs.rollback is 'How far it was undone: none, complete or partial';
comment on column runs.error is 'Text of the error';
comment on column runs.business_key is 'Key that is unique among unfinished runs';

comment on table run_details is 'What a run was started with; never changes';
comment on column run_details.tenant is 'Whose row this is; part of every key';
comment on column run_details.run_id is 'The run it belongs to: runs.id';
comment on column run_details.version is 'Version of the workflow';
comment on column run_details.created_at is 'When it was created (microseconds since 1970)';
comment on column run_details.rerun_of is 'Run that this one repeats';
comment on column run_details.workflow is 'Name of the workflow';
comment on column run_details.dialect is 'Dialect of the definition';
comment on column run_details.input is 'Input as JSON';
comment on column run_details.correlation_id is 'Id that related runs share; the run''s own id by default';
comment on column run_details.created_by is 'Actor that created it';
comment on column run_details.business_key is 'Business key, kept after the run has ended';
comment on column run_details.labels is 'Labels as a JSON object';

comment on table steps is 'State of each step; read step_view instead';
comment on column steps.tenant is 'Whose row this is; part of every key';
comment on column steps.run_id is 'The run it belongs to: runs.id';
comment on column steps.no is 'Number of the step in the plan: main steps, undo hooks, final check';
comment on column steps.queue is 'queues.id, 0 where no worker claims it';
comment on column steps.ready_at is 'Since when a worker may claim it (microseconds since 1970); null while none may';
comment on column steps.due_at is 'End of its lease, backoff or wait (microseconds since 1970)';
comment on column steps.claimed_at is 'When the present attempt was claimed (microseconds since 1970)';
comment on column steps.settled is 'Order of completion: journal sequence times 2^20, plus a number';
comment on column steps.priority is 'Larger is claimed first';
comment on column steps.fence is 'Fencing token: grows with every claim of the step and is never reused';
comment on column steps.worker is 'Worker that holds it: workers.no';
comment on column steps.attempts is 'Failed attempts that count against the retry budget';
comment on column steps.losses is 'Attempts that were lost with their worker';
comment on column steps.unmet is 'Dependencies that have not ended';
comment on column steps.state is 'State of the step';
comment on column steps.category is 'Category of the error';
comment on column steps.error is 'Text of the error';
comment on column steps.note is 'What few steps remember, as JSON';

comment on table attempts is 'Ended attempts of steps, each written once; read attempt_view instead';
comment on column attempts.tenant is 'Whose row this is; part of every key';
comment on column attempts.run_id is 'The run it belongs to: runs.id';
comment on column attempts.no is 'Number of the step in the plan: main steps, undo hooks, final check';
comment on column attempts.fence is 'Fencing token: grows with every claim of the step and is never reused';
comment on column attempts.number is 'Number of the attempt within the step';
comment on column attempts.worker is 'Worker that ran it: workers.no';
comment on column attempts.started_at is 'When it was claimed (microseconds since 1970)';
comment on column attempts.ended_at is 'When it ended (microseconds since 1970)';
comment on column attempts.state is 'How it ended';
comment on column attempts.category is 'Category of the error';
comment on column attempts.error is 'Text of the error';
comment on column attempts.output is 'Result as JSON';
comment on column attempts.cost is 'Reported cost as JSON';

comment on table journal is 'Record of every change of every run, chained by hashes; read journal_view instead';
comment on column journal.tenant is 'Whose row this is; part of every key';
comment on column journal.run_id is 'The run it belongs to: runs.id';
comment on column journal.seq is 'Journal sequence: 1 for the first entry';
comment on column journal.at is 'When it was written (microseconds since 1970)';
comment on column journal.body is 'The entry as canonical JSON';
comment on column journal.hash is 'SHA-256 of the hash before it and of the body';

comment on table messages is 'Messages that were sent to runs';
comment on column messages.tenant is 'Whose row this is; part of every key';
comment on column messages.run_id is 'The run it belongs to: runs.id';
comment on column messages.number is 'Order within the run';
comment on column messages.arrived_at is 'When it arrived (microseconds since 1970)';
comment on column messages.consumed_by is 'Number of the step that consumed it';
comment on column messages.id is 'Id that the sender gave; deduplicates';
comment on column messages.name is 'Name of the event';
comment on column messages.payload is 'Payload as JSON';
comment on column messages.sender is 'Actor that sent it';

comment on table outbox is 'What runs emitted for others to read';
comment on column outbox.tenant is 'Whose row this is; part of every key';
comment on column outbox.run_id is 'The run it belongs to: runs.id';
comment on column outbox.seq is 'Sequence of the journal entry that emitted it';
comment on column outbox.number is 'Order within the entry';
comment on column outbox.created_at is 'When it was emitted (microseconds since 1970)';
comment on column outbox.name is 'Name of the event';
comment on column outbox.payload is 'Payload as JSON';

comment on table idempotency_keys is 'Keys under which operations were made, so that a repetition has no effect';
comment on column idempotency_keys.tenant is 'Whose row this is; part of every key';
comment on column idempotency_keys.operation is 'Operation that was made';
comment on column idempotency_keys.key is 'Key that the caller gave';
comment on column idempotency_keys.fingerprint is 'Digest of what was asked';
comment on column idempotency_keys.run_id is 'Run that the operation made or changed';

comment on table business_keys is 'Business keys of unfinished runs';
comment on column business_keys.tenant is 'Whose row this is; part of every key';
comment on column business_keys.key is 'The business key';
comment on column business_keys.run_id is 'The unfinished run that holds it';

comment on table workers is 'Processes that run steps';
comment on column workers.tenant is 'Whose row this is; part of every key';
comment on column workers.id is 'Name of the worker';
comment on column workers.no is 'Number that steps and attempts refer to';
comment on column workers.incarnation is 'Grows with each registration under the same name';
comment on column workers.capacity is 'Attempts that it holds at once';
comment on column workers.heard_at is 'Latest heartbeat (microseconds since 1970)';
comment on column workers.started_at is 'When it registered (microseconds since 1970)';
comment on column workers.seq is 'Entries in its journal';
comment on column workers.head is 'SHA-256 of the latest journal entry';
comment on column workers.state is 'State of the worker';
comment on column workers.capabilities is 'JSON list of what it offers';
comment on column workers.queues is 'JSON list of the queues that it serves';

comment on table worker_journal is 'Record of every change of every worker, chained by hashes';
comment on column worker_journal.tenant is 'Whose row this is; part of every key';
comment on column worker_journal.worker_id is 'workers.id';
comment on column worker_journal.seq is 'Journal sequence: 1 for the first entry';
comment on column worker_journal.at is 'When it was written (microseconds since 1970)';
comment on column worker_journal.body is 'The entry as canonical JSON';
comment on column worker_journal.hash is 'SHA-256 of the hash before it and of the body';

comment on table quarantine is 'Runs that an operator has set aside, and their releases';
comment on column quarantine.id is 'Number of the quarantine';
comment on column quarantine.tenant is 'Whose row this is; part of every key';
comment on column quarantine.run_id is 'The run it belongs to: runs.id';
comment on column quarantine.quarantined_at is 'When it was set aside (microseconds since 1970)';
comment on column quarantine.released_at is 'When it was released (microseconds since 1970); null before';
comment on column quarantine.quarantined_by is 'Actor that set it aside';
comment on column quarantine.reason is 'Why it was set aside';
comment on column quarantine.released_by is 'Actor that released it';
comment on column quarantine.release_reason is 'Why it was released';

comment on table migrations is 'Migrations that were applied to this schema';
comment on column migrations.version is 'Number of the migration';
comment on column migrations.name is 'Name of the migration';
comment on column migrations.checksum is 'SHA-256 of its text';
comment on column migrations.applied_at is 'When it was applied (microseconds since 1970)';
