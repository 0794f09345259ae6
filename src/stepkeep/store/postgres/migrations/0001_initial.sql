-- The whole schema as of migration 42: tables with their indexes, triggers and comments; rules, weeks, views, confinement.
--
-- Tenant is in every key, and last in those of what a run has many of: ids differ sooner than tenants do, and the server
-- finds what stands first faster. Times are microseconds of stepkeep_now(). States are text with a CHECK. Payloads are JSON
-- in bytea, which the server never parses. The run row is the lock of everything that carries its id; hot tables have
-- no foreign keys, and no index beyond those of finding work, of what is live and of what was stopped. Keys compare
-- byte by byte (collation "C"): a language's rules would cost more than the rest of a look-up.

create function stepkeep_now() returns bigint language sql volatile parallel safe
    return (extract(epoch from clock_timestamp()) * 1000000)::bigint;

-- Ends a transaction that met another one, and tells it to look again.
create function stepkeep_met(it_did boolean) returns void language plpgsql volatile as $$
begin
    if it_did then
        raise exception using errcode = 'serialization_failure', message = 'a run has moved on, or a lease has run out';
    end if;
end $$;

-- A part of some bytes by its place, which is where it begins (from 1) times 2^31, plus how long it is. At -1 there is
-- none. The planner puts these into the statements that use them.
create function stepkeep_part(whole bytea, place bigint) returns bytea language sql immutable parallel safe
    return substring(whole from nullif(place >> 31, -1)::integer for (place & 2147483647)::integer);

create function stepkeep_text(whole bytea, place bigint) returns text language sql stable parallel safe
    return convert_from(
        substring(whole from nullif(place >> 31, -1)::integer for (place & 2147483647)::integer), 'UTF8');

-- Tells those who listen, when this transaction is committed. Where there is nothing to tell it is not even called.
create function stepkeep_tell(what text) returns text language plpgsql volatile strict as $$
begin
    perform pg_notify('stepkeep', what);
    return what;
end $$;

-- Finished is final. The WHEN clauses are all that the normal path pays, and are short because the server reads them anew
-- with every statement: a run has ended where it has an end, a step where it has its place. These triggers fire after the
-- row is written because one that fires before would lock every row a second time.
create function stepkeep_refuse() returns trigger language plpgsql as $$
begin
    raise exception using errcode = 'check_violation', message = tg_argv[0], table = tg_table_name;
end $$;

-- A finished run may be deleted for good; an unfinished one loses nothing. Looked at once per statement, because retention
-- deletes many rows in each. The schema is the trigger's own, because the search path of whoever deletes may be another.
create function stepkeep_keep_unfinished() returns trigger language plpgsql as $$
declare
    unfinished boolean;
begin
    execute format(
        'select exists (select from gone cross join lateral (select from %I.runs'
        ' where runs.tenant = gone.tenant and runs.id = gone.run_id and runs.ended_at is null offset 0) as run)',
        tg_table_schema) into unfinished;
    if unfinished then
        raise exception using errcode = 'check_violation', message = tg_argv[0], table = tg_table_name;
    end if;
    return null;
end $$;

create function stepkeep_keep_living() returns trigger language plpgsql as $$
declare
    living boolean;
begin
    execute format(
        'select exists (select from %I.workers where tenant = $1 and id = $2 and state <> ''shutdown'')',
        tg_table_schema) into living using old.tenant, old.worker_id;
    if living then
        raise exception using errcode = 'check_violation', message = tg_argv[0], table = tg_table_name;
    end if;
    return old;
end $$;

create table definitions (
    id integer generated always as identity primary key,
    version integer not null,
    published_at bigint not null,
    tenant text collate "C" not null,
    name text collate "C" not null,
    dialect text not null,
    digest text not null,
    document bytea not null,
    queues text not null,
    published_by text not null,
    unique (tenant, name, version)
);

-- A run keeps to the definition it was started with, so a published version is never changed and never deleted.
create trigger definition_never_changes after update or delete on definitions for each row
    execute function stepkeep_refuse('a published definition never changes; publish a new version');

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

create table queues (
    id integer generated always as identity primary key,
    tenant text collate "C" not null,
    spec text collate "C" not null,
    unique (tenant, spec)
);

comment on table queues is 'Kinds of work: a worker claims steps by queue';
comment on column queues.id is 'Number that steps refer to';
comment on column queues.tenant is 'Whose row this is; part of every key';
comment on column queues.spec is 'What a worker must offer, as JSON';

create table runs (
    tenant text collate "C" not null,
    id uuid not null,
    definition_id integer not null,
    priority integer not null,
    seq bigint not null,
    due_at bigint,
    started_at bigint,
    ended_at bigint,
    moved_at bigint not null,
    open integer not null,
    moving integer not null,
    leased integer not null,
    failed integer not null,
    undoing integer not null,
    inbox integer not null,
    state text not null,
    head bytea not null,
    cause text,
    policy text,
    category text,
    rollback text not null,
    error text,
    business_key text,
    primary key (tenant, id)
) with (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05
);

create index runs_due on runs (due_at) where due_at is not null;
create index runs_live on runs (tenant, id) where ended_at is null;
create index runs_troubled on runs (tenant, id) where cause is not null;

create trigger finished_run_never_changes after update on runs for each row
    when (old.ended_at is not null or new.seq < old.seq)
    execute function stepkeep_refuse('a finished run never changes, and the journal of a run only grows');

create trigger unfinished_run_stays after delete on runs for each row
    when (old.state not in ('succeeded', 'failed', 'cancelled', 'rolled_back'))
    execute function stepkeep_refuse('only a finished run can be deleted');

-- A run changes its state only with a journal entry, and leaves `idle` only by a start or a cancel.
--
-- One transaction may make several hops, so the row of a run that starts may go from idle to running at once. What no
-- hop explains is refused: a new state at the same sequence, or a run that runs and was never started.
create trigger run_starts_before_it_runs after update of state on runs for each row
    when (new.state <> old.state and (
        new.seq = old.seq or (old.state = 'idle' and new.started_at is null and new.state <> 'cancelled')))
    execute function stepkeep_refuse('a run changes its state with a journal entry, and leaves idle when it is started');

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

create table run_details (
    tenant text collate "C" not null,
    run_id uuid not null,
    version integer not null,
    created_at bigint not null,
    rerun_of uuid,
    workflow text collate "C" not null,
    dialect text not null,
    input bytea not null,
    correlation_id text not null,
    created_by text not null,
    business_key text,
    labels bytea,
    asked_before bytea,
    policy_revision integer,
    primary key (tenant, run_id)
);

create index run_details_workflow on run_details (tenant, workflow, run_id);
create index run_details_business_key on run_details (tenant, business_key, run_id) where business_key is not null;
create index run_details_correlation on run_details (tenant, correlation_id, run_id)
    where correlation_id <> run_id::text;
create index run_details_reruns on run_details (tenant, rerun_of, run_id) where rerun_of is not null;

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
comment on column run_details.asked_before is
    'The people who asked for the runs that it repeats, as a JSON list; null if it repeats none';
comment on column run_details.policy_revision is 'The revision of the live policy that the run is pinned to';

create table steps (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null,
    queue integer not null,
    ready_at bigint,
    due_at bigint,
    claimed_at bigint,
    settled bigint,
    priority integer not null,
    fence integer not null,
    worker integer,
    attempts integer not null,
    losses integer not null,
    unmet integer not null,
    state text not null,
    category text,
    error text,
    note text,
    primary key (run_id, no, tenant)
) with (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 1,
    autovacuum_analyze_scale_factor = 0.05
);

-- The claimable steps of one run by number: within a run, workers claim the lowest first.
--
-- A step that is claimed by the transaction that made it ready never enters this index.
create index steps_ready on steps (run_id, no) where ready_at is not null;

-- The steps that are claimed together with their resources: their time is beyond every clock.
create index steps_await_resources on steps (queue, priority desc, ready_at, run_id, no)
    where ready_at >= 100000000000000000 and ready_at < 200000000000000000;

create index steps_claim on steps (queue, priority desc, ready_at, run_id, no) where ready_at is not null;
create index steps_due on steps (due_at) where due_at is not null;

create trigger finished_step_never_changes after update on steps for each row
    when (old.settled is not null or new.fence < old.fence)
    execute function stepkeep_refuse('a finished step never changes, and its fence only grows');

create trigger unfinished_run_keeps_its_steps after delete on steps
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the steps of a finished run can be deleted');

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

create table attempts (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null,
    fence integer not null,
    number integer not null,
    worker integer not null,
    started_at bigint not null,
    ended_at bigint not null,
    state text not null,
    category text,
    error text,
    output bytea,
    cost bytea,
    primary key (run_id, no, fence, tenant)
) with (autovacuum_vacuum_insert_scale_factor = 0.1);

-- What attempts cost is found by tenant and time.
create index attempts_cost on attempts (tenant, ended_at) where cost is not null;

create trigger attempt_never_changes after update on attempts for each row
    execute function stepkeep_refuse('an attempt is written once, when it ends');

create trigger unfinished_run_keeps_its_attempts after delete on attempts
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the attempts of a finished run can be deleted');

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

-- Range by run id is range by time, because run ids begin with the moment of the start. Weeks are added ahead of time
-- by stepkeep_extend_journal and dropped when retention has emptied them; the default takes what fits none.
create table journal (
    tenant text collate "C" not null,
    run_id uuid not null,
    seq bigint not null,
    at bigint not null,
    body bytea not null,
    hash bytea not null,
    xact bigint default pg_current_xact_id()::text::bigint,
    primary key (run_id, seq, tenant),
    constraint entry_is_sealed check (seq > 0 and length(hash) = 32)
) partition by range (run_id);

-- The transaction of each entry: what happens in a tenant is followed in the order of transactions. Entries of before
-- migration 21 have none and are not followed. A BRIN index adds next to nothing to a write.

create index journal_xact on journal using brin (xact) with (autosummarize = on);

-- The record is only ever added to.
create trigger journal_never_changes after update on journal for each row
    execute function stepkeep_refuse('the journal is only ever added to');

create trigger unfinished_run_keeps_its_journal after delete on journal
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the journal of a finished run can be deleted');

comment on table journal is 'Record of every change of every run, chained by hashes; read journal_view instead';
comment on column journal.tenant is 'Whose row this is; part of every key';
comment on column journal.run_id is 'The run it belongs to: runs.id';
comment on column journal.seq is 'Journal sequence: 1 for the first entry';
comment on column journal.at is 'When it was written (microseconds since 1970)';
comment on column journal.body is 'The entry as canonical JSON';
comment on column journal.hash is 'SHA-256 of the hash before it and of the body';
comment on column journal.xact is 'The transaction that wrote the entry; null where it was written before this column was';

create table journal_default partition of journal default with (autovacuum_vacuum_insert_scale_factor = 0.1);

create trigger unfinished_run_keeps_its_journal after delete on journal_default
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the journal of a finished run can be deleted');

create table messages (
    tenant text collate "C" not null,
    run_id uuid not null,
    number bigint not null,
    arrived_at bigint not null,
    consumed_by integer,
    id text collate "C" not null,
    name text collate "C" not null,
    payload bytea not null,
    sender text not null,
    primary key (tenant, run_id, number),
    unique (tenant, run_id, id)
);

create trigger consumed_message_never_changes after update on messages for each row
    when (old.consumed_by is not null)
    execute function stepkeep_refuse('a consumed message never changes');

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

create table outbox (
    tenant text collate "C" not null,
    run_id uuid not null,
    seq bigint not null,
    number integer not null,
    created_at bigint not null,
    name text collate "C" not null,
    payload bytea not null,
    primary key (tenant, run_id, seq, number)
);

comment on table outbox is 'What runs emitted for others to read';
comment on column outbox.tenant is 'Whose row this is; part of every key';
comment on column outbox.run_id is 'The run it belongs to: runs.id';
comment on column outbox.seq is 'Sequence of the journal entry that emitted it';
comment on column outbox.number is 'Order within the entry';
comment on column outbox.created_at is 'When it was emitted (microseconds since 1970)';
comment on column outbox.name is 'Name of the event';
comment on column outbox.payload is 'Payload as JSON';

create table idempotency_keys (
    tenant text collate "C" not null,
    operation text collate "C" not null,
    key text collate "C" not null,
    fingerprint text not null,
    run_id uuid not null,
    scope text collate "C" not null default '',
    primary key (tenant, operation, key, scope)
);

create index idempotency_keys_run on idempotency_keys (tenant, run_id);

comment on table idempotency_keys is 'Keys under which operations were made, so that a repetition has no effect';
comment on column idempotency_keys.tenant is 'Whose row this is; part of every key';
comment on column idempotency_keys.operation is 'Operation that was made';
comment on column idempotency_keys.key is 'Key that the caller gave';
comment on column idempotency_keys.fingerprint is 'Digest of what was asked';
comment on column idempotency_keys.run_id is 'Run that the operation made or changed';
comment on column idempotency_keys.scope is 'Whose key it is: the first API key of a line, or tenant; empty: of any caller';

create table business_keys (
    tenant text collate "C" not null,
    key text collate "C" not null,
    run_id uuid not null,
    primary key (tenant, key)
);

comment on table business_keys is 'Business keys of unfinished runs';
comment on column business_keys.tenant is 'Whose row this is; part of every key';
comment on column business_keys.key is 'The business key';
comment on column business_keys.run_id is 'The unfinished run that holds it';

create table workers (
    tenant text collate "C" not null,
    id text collate "C" not null,
    no integer generated always as identity unique,
    incarnation integer not null,
    capacity integer not null,
    heard_at bigint not null,
    started_at bigint not null,
    seq bigint not null,
    head bytea not null,
    state text not null,
    capabilities text not null,
    queues text not null,
    owner text,
    primary key (tenant, id),
    constraint worker_counters check (least(incarnation, capacity, seq) >= 0),
    constraint worker_state check (state in (
        'initializing', 'idle', 'busy', 'unresponsive', 'draining', 'shutdown'))
) with (fillfactor = 70);

create index workers_living on workers (tenant, no) where state <> 'shutdown';

-- A worker keeps its owner: `executed:` of a gate finds the people behind attempts through the number of the worker.
create trigger worker_keeps_its_owner after update of owner on workers for each row
    when (old.owner is distinct from new.owner)
    execute function stepkeep_refuse('a worker keeps its owner: register another worker');

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
comment on column workers.owner is 'The owner of the key that the worker was opened with; null without one';

create table worker_journal (
    tenant text collate "C" not null,
    worker_id text collate "C" not null,
    seq bigint not null,
    at bigint not null,
    body bytea not null,
    hash bytea not null,
    primary key (tenant, worker_id, seq),
    constraint worker_entry_is_sealed check (seq > 0 and length(hash) = 32)
);

create trigger worker_journal_never_changes after update on worker_journal for each row
    execute function stepkeep_refuse('the journal of a worker is only ever added to');

create trigger living_worker_keeps_its_journal before delete on worker_journal for each row
    execute function stepkeep_keep_living('only the journal of a worker that was shut down can be deleted');

comment on table worker_journal is 'Record of every change of every worker, chained by hashes';
comment on column worker_journal.tenant is 'Whose row this is; part of every key';
comment on column worker_journal.worker_id is 'workers.id';
comment on column worker_journal.seq is 'Journal sequence: 1 for the first entry';
comment on column worker_journal.at is 'When it was written (microseconds since 1970)';
comment on column worker_journal.body is 'The entry as canonical JSON';
comment on column worker_journal.hash is 'SHA-256 of the hash before it and of the body';

-- Runs that an operator has set aside, and why. A table of its own, because an unreadable run cannot seal an entry of its
-- journal. Each row is one quarantine; its release is added to it, once, and nothing else ever changes.
create table quarantine (
    id bigint generated always as identity primary key,
    tenant text collate "C" not null,
    run_id uuid not null,
    quarantined_at bigint not null,
    released_at bigint,
    quarantined_by text not null,
    reason text not null,
    released_by text,
    release_reason text,
    constraint release_is_whole check (
        (released_at is null) = (released_by is null) and (released_at is null) = (release_reason is null))
);

create unique index quarantine_open on quarantine (tenant, run_id) where released_at is null;

create trigger quarantine_only_grows after update on quarantine for each row
    when (old.released_at is not null or new.released_at is null or new.id <> old.id or new.tenant <> old.tenant
        or new.run_id <> old.run_id or new.quarantined_at <> old.quarantined_at
        or new.quarantined_by <> old.quarantined_by or new.reason <> old.reason)
    execute function stepkeep_refuse('a quarantine is only ever released, once');

create trigger quarantine_is_never_deleted after delete on quarantine for each row
    execute function stepkeep_refuse('the record of a quarantine is kept');

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

-- What diagnosis needs beside the record: what each worker serves, and the evidence of failed attempts. Neither is part
-- of the record. A worker overwrites its report with each heartbeat; evidence is deleted with its run.
create table worker_reports (
    tenant text collate "C" not null,
    worker integer not null,
    reported_at bigint not null,
    body text not null,
    primary key (tenant, worker)
) with (fillfactor = 50);

comment on table worker_reports is 'What each worker last said about itself, at its latest heartbeat';
comment on column worker_reports.tenant is 'Whose worker it is';
comment on column worker_reports.worker is 'The number of the worker';
comment on column worker_reports.reported_at is 'When it was said, in microseconds since 1970';
comment on column worker_reports.body is 'JSON: handlers, queues, places and how many are held, host, version';

create table attempt_evidence (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null,
    fence integer not null,
    body text not null,
    primary key (run_id, no, fence, tenant)
);

comment on table attempt_evidence is 'Why attempts failed: traceback, inputs and log lines, bounded and redacted';
comment on column attempt_evidence.tenant is 'Whose run it is';
comment on column attempt_evidence.run_id is 'The run';
comment on column attempt_evidence.no is 'The number of the step in the plan';
comment on column attempt_evidence.fence is 'The fence of the attempt';
comment on column attempt_evidence.body is 'JSON: traceback, inputs, log';

-- Large payloads, outside the rows that refer to them: the value in chunks, under its digest. A reference in `input` or
-- `output` has the digest and the size. Chunks are written with the row that refers to them and deleted with their run.
create table payload_chunks (
    tenant text collate "C" not null,
    run_id uuid not null,
    digest text collate "C" not null check (length(digest) = 64),
    no integer not null check (no >= 0),
    body bytea not null,
    primary key (run_id, digest, no, tenant)
);

comment on table payload_chunks is 'Large payloads, outside the rows that refer to them by digest';
comment on column payload_chunks.tenant is 'Whose run it is';
comment on column payload_chunks.run_id is 'The run';
comment on column payload_chunks.digest is 'The SHA-256 of the whole payload, in hexadecimal';
comment on column payload_chunks.no is 'The number of the chunk, from 0';
comment on column payload_chunks.body is 'A part of the JSON of the payload';

-- People: tenants, principals, roles and groups with their dates, delegations, API keys, and the record of changes.
--
-- A row is added, and ended at most once. Every change has an entry in `people_journal`, added by one writer at a time.
create table tenants (
    name text collate "C" not null primary key,
    vouching text not null,
    created_at bigint not null,
    created_by text not null,
    constraint tenant_vouching check (vouching in ('allowed', 'refused'))
);

comment on table tenants is 'Tenants that have settings of their own; a tenant needs no row to have runs';
comment on column tenants.name is 'The tenant, as in every other table';
comment on column tenants.vouching is 'Whether a program may name a person without a key: allowed or refused';
comment on column tenants.created_at is 'When it was created (microseconds since 1970)';
comment on column tenants.created_by is 'The actor';

create table principals (
    tenant text collate "C" not null,
    name text collate "C" not null,
    kind text not null,
    display text not null,
    folded text collate "C" not null,
    created_at bigint not null,
    created_by text not null,
    disabled_at bigint,
    disabled_by text,
    primary key (tenant, name),
    unique (tenant, folded),
    constraint principal_kind check (kind in ('user', 'service')),
    constraint principal_end check ((disabled_at is null) = (disabled_by is null))
);

comment on table principals is 'Users and services of a tenant';
comment on column principals.tenant is 'Whose row this is; part of every key';
comment on column principals.name is 'The name on record, as in the journal';
comment on column principals.kind is 'user or service';
comment on column principals.display is 'The name to show to people';
comment on column principals.folded is 'The name without case and look-alike letters; unique in the tenant';
comment on column principals.created_at is 'When it was created (microseconds since 1970)';
comment on column principals.created_by is 'The actor';
comment on column principals.disabled_at is 'From when on it may not act; null for one that may';
comment on column principals.disabled_by is 'The actor that disabled it';

create table memberships (
    tenant text collate "C" not null,
    id text collate "C" not null,
    subject text collate "C" not null,
    subject_kind text not null,
    kind text not null,
    name text collate "C" not null,
    granted_at bigint not null,
    granted_by text not null,
    valid_from bigint,
    valid_to bigint,
    revoked_at bigint,
    revoked_by text,
    primary key (tenant, id),
    constraint membership_subject_kind check (subject_kind in ('person', 'group')),
    constraint membership_kind check (kind in ('role', 'group')),
    constraint membership_depth check (subject_kind = 'person' or kind = 'role'),
    constraint membership_end check ((revoked_at is null) = (revoked_by is null))
);

create index memberships_subject on memberships (tenant, subject_kind, subject);
create index memberships_name on memberships (tenant, kind, name);

-- Ended is final, and what was granted stays as it was granted.
create trigger ended_membership_never_changes after update on memberships for each row
    when (old.revoked_at is not null
        or (old.subject, old.subject_kind, old.kind, old.name, old.granted_at, old.granted_by)
            <> (new.subject, new.subject_kind, new.kind, new.name, new.granted_at, new.granted_by)
        or old.valid_from is distinct from new.valid_from or old.valid_to is distinct from new.valid_to)
    execute function stepkeep_refuse('a membership is only ever added, and revoked once');

create trigger membership_stays after delete on memberships for each row
    execute function stepkeep_refuse('a membership is revoked, never deleted');

comment on table memberships is 'Roles and groups of persons, and roles of groups, with their dates';
comment on column memberships.tenant is 'Whose row this is; part of every key';
comment on column memberships.id is 'The id of the membership';
comment on column memberships.subject is 'The person or the group that has it';
comment on column memberships.subject_kind is 'person or group';
comment on column memberships.kind is 'What it gives: a role or a group';
comment on column memberships.name is 'The name of the role or the group';
comment on column memberships.granted_at is 'When it was granted (microseconds since 1970)';
comment on column memberships.granted_by is 'The actor that granted it';
comment on column memberships.valid_from is 'From when on it counts; null: at once';
comment on column memberships.valid_to is 'Until when it counts; null: until it is revoked';
comment on column memberships.revoked_at is 'When it was revoked';
comment on column memberships.revoked_by is 'The actor that revoked it';

create table delegations (
    tenant text collate "C" not null,
    id text collate "C" not null,
    delegator text collate "C" not null,
    delegate text collate "C" not null,
    granted_at bigint not null,
    granted_by text not null,
    reason text not null,
    valid_from bigint,
    valid_to bigint,
    revoked_at bigint,
    revoked_by text,
    primary key (tenant, id),
    constraint delegation_to_another check (delegator <> delegate),
    constraint delegation_end check ((revoked_at is null) = (revoked_by is null))
);

create index delegations_delegate on delegations (tenant, delegate);

create trigger ended_delegation_never_changes after update on delegations for each row
    when (old.revoked_at is not null
        or (old.delegator, old.delegate, old.granted_at, old.granted_by, old.reason)
            <> (new.delegator, new.delegate, new.granted_at, new.granted_by, new.reason)
        or old.valid_from is distinct from new.valid_from or old.valid_to is distinct from new.valid_to)
    execute function stepkeep_refuse('a delegation is only ever added, and revoked once');

create trigger delegation_stays after delete on delegations for each row
    execute function stepkeep_refuse('a delegation is revoked, never deleted');

comment on table delegations is 'Rights of one person to decide on behalf of another';
comment on column delegations.tenant is 'Whose row this is; part of every key';
comment on column delegations.id is 'The id of the delegation';
comment on column delegations.delegator is 'The person whose roles count';
comment on column delegations.delegate is 'The person who decides';
comment on column delegations.granted_at is 'When it was granted (microseconds since 1970)';
comment on column delegations.granted_by is 'The actor that granted it';
comment on column delegations.reason is 'Why';
comment on column delegations.valid_from is 'From when on it counts; null: at once';
comment on column delegations.valid_to is 'Until when it counts; null: until it is revoked';
comment on column delegations.revoked_at is 'When it was revoked';
comment on column delegations.revoked_by is 'The actor that revoked it';

create table api_keys (
    tenant text collate "C" not null,
    id text collate "C" not null unique,
    owner text collate "C" not null,
    secret_hash text not null check (length(secret_hash) = 64),
    scopes text not null,
    created_at bigint not null,
    created_by text not null,
    expires_at bigint,
    revoked_at bigint,
    revoked_by text,
    replaces text,
    max_concurrent_runs integer,
    max_requests_per_min integer,
    queues text,
    handlers text,
    lineage text,
    primary key (tenant, id),
    constraint key_end check ((revoked_at is null) = (revoked_by is null))
);

create trigger revoked_key_never_changes after update on api_keys for each row
    when (old.revoked_at is not null
        or (old.owner, old.secret_hash, old.scopes, old.created_at, old.created_by)
            <> (new.owner, new.secret_hash, new.scopes, new.created_at, new.created_by)
        or (old.expires_at is not null and (new.expires_at is null or new.expires_at > old.expires_at)))
    execute function stepkeep_refuse(
        'a key keeps its owner, secret and scopes, never gets a later end, and is revoked once');

create trigger key_keeps_its_quotas after update on api_keys for each row
    when (old.max_concurrent_runs is distinct from new.max_concurrent_runs
        or old.max_requests_per_min is distinct from new.max_requests_per_min)
    execute function stepkeep_refuse('a key keeps its quotas: rotate it, or make another one');

create trigger key_keeps_its_limits after update on api_keys for each row
    when (old.queues is distinct from new.queues or old.handlers is distinct from new.handlers)
    execute function stepkeep_refuse('a key keeps the queues and handlers that it is limited to: make another one');

comment on table api_keys is 'API keys of principals; of the secret only a hash is kept';
comment on column api_keys.tenant is 'Whose row this is; part of every key';
comment on column api_keys.id is 'The public id of the key';
comment on column api_keys.owner is 'The principal that it authenticates';
comment on column api_keys.secret_hash is 'The SHA-256 of the secret, in hexadecimal';
comment on column api_keys.scopes is 'JSON: what it may be used for';
comment on column api_keys.created_at is 'When it was created (microseconds since 1970)';
comment on column api_keys.created_by is 'The actor';
comment on column api_keys.expires_at is 'From when on it is refused; null: when it is revoked';
comment on column api_keys.revoked_at is 'When it was revoked';
comment on column api_keys.revoked_by is 'The actor that revoked it';
comment on column api_keys.replaces is 'The key that it replaced by a rotation';
comment on column api_keys.max_concurrent_runs is 'How many unfinished runs the key may have; null: no limit of its own';
comment on column api_keys.max_requests_per_min is 'How many requests a minute; null: no limit of its own';
comment on column api_keys.queues is 'The names of the queues that it may work on, as JSON; null: any';
comment on column api_keys.handlers is 'The names of the handlers that it may work on, as JSON; null: any';
comment on column api_keys.lineage is 'The first key that it replaces through others; null: it replaces none';

create table people_journal (
    tenant text collate "C" not null,
    seq bigint not null check (seq > 0),
    at bigint not null,
    subject text collate "C" not null,
    body bytea not null,
    hash bytea not null check (length(hash) = 32),
    primary key (tenant, seq)
);

create index people_journal_subject on people_journal (tenant, subject, seq);
create index people_journal_time on people_journal (tenant, at, seq);

create trigger people_journal_never_changes after update on people_journal for each row
    execute function stepkeep_refuse('the journal of people is only ever added to');

create trigger people_journal_stays after delete on people_journal for each row
    execute function stepkeep_refuse('the journal of people is never deleted');

comment on table people_journal is 'Record of every change of people, roles, delegations and keys, chained by hashes';
comment on column people_journal.tenant is 'Whose row this is; part of every key';
comment on column people_journal.seq is 'Journal sequence: 1 for the first entry';
comment on column people_journal.at is 'When it was written (microseconds since 1970)';
comment on column people_journal.subject is 'The person, group or tenant that changed';
comment on column people_journal.body is 'The entry as canonical JSON';
comment on column people_journal.hash is 'SHA-256 of the hash before it and of the body';

-- The registry of JSON Schemas that definitions refer to. A published schema never changes.
create table schemas (
    tenant text collate "C" not null,
    ref text collate "C" not null,
    digest text not null check (length(digest) = 64),
    document bytea not null,
    published_at bigint not null,
    published_by text not null,
    primary key (tenant, ref)
);

create trigger schema_never_changes after update or delete on schemas for each row
    execute function stepkeep_refuse('a published schema never changes; publish it under another reference');

comment on table schemas is 'JSON Schemas that definitions refer to; a published one never changes';
comment on column schemas.tenant is 'Whose row this is; part of every key';
comment on column schemas.ref is 'The reference by which definitions name it';
comment on column schemas.digest is 'SHA-256 of the document';
comment on column schemas.document is 'The schema as canonical JSON';
comment on column schemas.published_at is 'When it was published (microseconds since 1970)';
comment on column schemas.published_by is 'Actor that published it';

-- Gates: one row for each opening, with what people were shown and how it ended; and one row for each decision.
--
-- They are the record, and what lists are made of. The kernel decides from the row of the step.
create table gates (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null check (no >= 0),
    activation bigint not null check (activation >= 0),
    opened_at bigint not null,
    level integer not null check (level >= 0),
    due_at bigint,
    shown bytea not null,
    shown_digest text not null check (length(shown_digest) = 64),
    closed_at bigint,
    outcome text,
    primary key (tenant, run_id, no, activation),
    constraint gate_end check ((closed_at is null) = (outcome is null))
);

create index gates_open on gates (tenant, run_id, no) where closed_at is null;

create trigger closed_gate_never_changes after update on gates for each row
    when (old.closed_at is not null or old.opened_at <> new.opened_at or old.shown <> new.shown
        or old.shown_digest <> new.shown_digest or new.level < old.level)
    execute function stepkeep_refuse('a gate keeps what it showed, and is closed once');

create trigger unfinished_run_keeps_its_gates after delete on gates
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the gates of a finished run can be deleted');

comment on table gates is 'Openings of gates: what people were shown, and how each ended';
comment on column gates.tenant is 'Whose run it is';
comment on column gates.run_id is 'The run';
comment on column gates.no is 'The number of the step in the plan of the run';
comment on column gates.activation is 'The sequence of the journal entry that opened the gate';
comment on column gates.opened_at is 'When it opened';
comment on column gates.level is 'How often it has escalated';
comment on column gates.due_at is 'Its deadline; null without one';
comment on column gates.shown is 'What people were shown, as JSON';
comment on column gates.shown_digest is 'The SHA-256 of what was shown, in hexadecimal';
comment on column gates.closed_at is 'When it closed; null while it is open';
comment on column gates.outcome is 'The trigger that closed it';

create table decisions (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null check (no >= 0),
    activation bigint not null check (activation >= 0),
    person text collate "C" not null,
    on_behalf_of text,
    level integer not null check (level >= 0),
    decision text not null check (decision in ('approved', 'rejected')),
    at bigint not null,
    comment text not null,
    evidence bytea,
    key_id text,
    delegation_id text,
    held_roles text not null,
    vouched_by text,
    shown_digest text,
    primary key (tenant, run_id, no, activation, person),
    constraint decision_for_another check (on_behalf_of is null or on_behalf_of <> person)
);

create trigger decision_never_changes after update on decisions for each row
    execute function stepkeep_refuse('a decision never changes');

create trigger unfinished_run_keeps_its_decisions after delete on decisions
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the decisions of a finished run can be deleted');

comment on table decisions is 'Decisions of people about gates; none ever changes';
comment on column decisions.tenant is 'Whose run it is';
comment on column decisions.run_id is 'The run';
comment on column decisions.no is 'The number of the step in the plan of the run';
comment on column decisions.activation is 'The sequence of the journal entry that opened the gate';
comment on column decisions.person is 'The person who decided';
comment on column decisions.on_behalf_of is 'The delegator; null where the person decided in their own name';
comment on column decisions.level is 'The level of the gate at that moment';
comment on column decisions.decision is 'approved or rejected';
comment on column decisions.at is 'When it was decided';
comment on column decisions.comment is 'The words of the person';
comment on column decisions.evidence is 'References to evidence, as a JSON list';
comment on column decisions.key_id is 'The API key that authenticated the caller';
comment on column decisions.delegation_id is 'The delegation that was used';
comment on column decisions.held_roles is 'The roles, groups or names by which the person might decide, as a JSON list';
comment on column decisions.vouched_by is 'The program that named the person';
comment on column decisions.shown_digest is 'The SHA-256 of what was shown, in hexadecimal';

-- The live policies of tenants, in numbered revisions. The newest one counts.
create table policies (
    tenant text collate "C" not null,
    revision integer not null check (revision > 0),
    name text not null,
    digest text not null,
    document bytea not null,
    published_at bigint not null,
    published_by text not null,
    primary key (tenant, revision)
);

create trigger policy_never_changes after update on policies for each row
    execute function stepkeep_refuse('a policy is only ever added: publish another revision');

create trigger policy_stays after delete on policies for each row
    execute function stepkeep_refuse('a policy is never deleted: verdicts on record refer to it');

comment on table policies is 'Live policies of tenants: rules that allow, hold or deny steps; the newest revision counts';
comment on column policies.tenant is 'Whose row this is; part of every key';
comment on column policies.revision is 'The number of the revision: 1 for the first one';
comment on column policies.name is 'The name of the policy';
comment on column policies.digest is 'The SHA-256 of the document, in hexadecimal';
comment on column policies.document is 'The rules as canonical JSON';
comment on column policies.published_at is 'When it was published (microseconds since 1970)';
comment on column policies.published_by is 'The actor';

-- Settings of tenants in numbered revisions: allow lists, inbound webhooks. The newest revision of a name counts.
create table settings (
    tenant text collate "C" not null,
    kind text collate "C" not null,
    name text collate "C" not null,
    revision integer not null check (revision > 0),
    document bytea not null,
    saved_at bigint not null,
    saved_by text not null,
    primary key (tenant, kind, name, revision)
);

create trigger setting_never_changes after update on settings for each row
    execute function stepkeep_refuse('a setting is only ever added: save another revision');

create trigger setting_stays after delete on settings for each row
    execute function stepkeep_refuse('a setting is never deleted: its revisions are the record of its changes');

comment on table settings is 'Settings of tenants: allow lists, inbound webhooks; the newest revision of a name counts';
comment on column settings.tenant is 'Whose row this is; part of every key';
comment on column settings.kind is 'What it sets: network or hook';
comment on column settings.name is 'The name among the settings of its kind';
comment on column settings.revision is 'The number of the revision: 1 for the first one';
comment on column settings.document is 'The setting as JSON; null where it was removed';
comment on column settings.saved_at is 'When it was saved (microseconds since 1970)';
comment on column settings.saved_by is 'The actor';

-- Messages that were sent by business key: those kept for a run that does not exist yet, and the ids of delivered ones.
create table mailbox (
    tenant text collate "C" not null,
    key text collate "C" not null,
    id text collate "C" not null,
    number bigint not null check (number >= 0),
    name text collate "C" not null,
    payload bytea,
    sender text not null,
    vouched_by text,
    key_id text,
    arrived_at bigint not null,
    expires_at bigint not null,
    forget_at bigint not null,
    run_id uuid,
    primary key (tenant, key, id),
    check (run_id is null or payload is null),
    check (forget_at >= expires_at)
);

create index mailbox_kept on mailbox (tenant, key, number, id) where payload is not null;
create index mailbox_forget on mailbox (forget_at);

create trigger delivered_message_stays_delivered after update on mailbox for each row
    when (old.run_id is not null and old.forget_at > new.arrived_at)
    execute function stepkeep_refuse('a delivered message never changes');

comment on table mailbox is 'Messages sent by business key: kept for a run that does not exist yet, or delivered';
comment on column mailbox.tenant is 'Whose row this is; part of every key';
comment on column mailbox.key is 'The business key that the message was sent to';
comment on column mailbox.id is 'The sender''s id of the message; the same one again changes nothing';
comment on column mailbox.number is 'Orders the kept messages of a key; 0 for one that was delivered at once';
comment on column mailbox.name is 'The name of the event';
comment on column mailbox.payload is 'The payload as JSON while the message is kept; null once it was delivered or dropped';
comment on column mailbox.sender is 'Actor that sent it';
comment on column mailbox.vouched_by is 'The program that named the actor, if one did';
comment on column mailbox.key_id is 'The id of the API key that was used';
comment on column mailbox.arrived_at is 'When it was sent (microseconds since 1970)';
comment on column mailbox.expires_at is 'From when on it is not delivered any more (microseconds since 1970)';
comment on column mailbox.forget_at is 'When its id is forgotten and the row deleted (microseconds since 1970)';
comment on column mailbox.run_id is 'The run that it was delivered to';

-- Triggers: what starts runs by itself, what became of each firing, and backfills.
--
-- A firing and the run that it starts are written in one transaction, under a new sequence number of the trigger's row.
-- `due_at` of a trigger is its only timer. A moment fires once: its row never gets another run.
create table triggers (
    tenant text collate "C" not null,
    name text collate "C" not null,
    seq bigint not null check (seq > 0),
    workflow text not null,
    version integer,
    kind text not null check (kind in ('schedule', 'event', 'ended')),
    topic text,
    spec bytea not null,
    next_at bigint,
    due_at bigint,
    cursor_at bigint,
    paused_at bigint,
    paused_by text,
    created_at bigint not null,
    created_by text not null,
    removed_at bigint,
    primary key (tenant, name)
);

-- Ends of runs are noted for triggers by the transaction that ends a run; old firings are deleted by retention.
create index triggers_ended on triggers (tenant, topic, name) where kind = 'ended' and removed_at is null;

create index triggers_due on triggers (due_at) where due_at is not null;
create index triggers_workflow on triggers (tenant, workflow, name);
create index triggers_kind on triggers (tenant, kind, name);

create trigger trigger_goes_on after update on triggers for each row
    when (new.seq <= old.seq)
    execute function stepkeep_refuse('each change of a trigger has a new sequence number');

comment on table triggers is 'What starts runs: schedules, events, and the ends of other runs';
comment on column triggers.tenant is 'Whose row this is; part of every key';
comment on column triggers.name is 'Its name';
comment on column triggers.seq is 'Counts its changes; every firing is one';
comment on column triggers.workflow is 'The workflow that it starts';
comment on column triggers.version is 'The version of the definition that declares it; null: it starts the newest one';
comment on column triggers.kind is 'schedule, event or ended';
comment on column triggers.topic is 'The name of its event, or the workflow whose runs end';
comment on column triggers.spec is 'Its schedule, condition, inputs and policies, as JSON';
comment on column triggers.next_at is 'The next moment of its schedule (microseconds since 1970)';
comment on column triggers.due_at is 'When a sweep looks at it next; null: never';
comment on column triggers.cursor_at is 'Since when the unfinished runs of its topic are to be noted; null: they were';
comment on column triggers.paused_at is 'Since when it is paused';
comment on column triggers.paused_by is 'The actor who paused it';
comment on column triggers.created_at is 'When it was added';
comment on column triggers.created_by is 'The actor who added it';
comment on column triggers.removed_at is 'When it was removed; its firings stay';

create table firings (
    tenant text collate "C" not null,
    trigger_name text collate "C" not null,
    moment text collate "C" not null,
    due_at bigint not null,
    state text not null check (state in ('awaiting', 'waiting', 'started', 'skipped', 'refused')),
    watched integer not null check (watched in (0, 1)),
    made_at bigint not null,
    depth integer not null check (depth >= 0),
    run_id uuid,
    source text,
    backfill text,
    reason text,
    given bytea,
    primary key (tenant, trigger_name, moment),
    constraint started_firing_has_a_run check ((state = 'started') = (run_id is not null))
);

create index firings_due on firings (tenant, trigger_name, due_at, moment);
create index firings_watched on firings (tenant, trigger_name, due_at) where watched = 1;
create index firings_run on firings (tenant, run_id) where run_id is not null;
create index firings_awaiting on firings (tenant, source) where state = 'awaiting';
create index firings_made on firings (tenant, made_at) where watched = 0;

create trigger fired_moment_never_changes after update on firings for each row
    when (old.run_id is not null and old.run_id is distinct from new.run_id)
    execute function stepkeep_refuse('a moment fires once: its run never changes');

comment on table firings is 'What became of each moment, event or ending of a trigger; each fires once';
comment on column firings.tenant is 'Whose row this is; part of every key';
comment on column firings.trigger_name is 'The trigger';
comment on column firings.moment is 'The scheduled moment, the id of the event, or the id of the run that ended';
comment on column firings.due_at is 'When it was due (microseconds since 1970)';
comment on column firings.state is 'awaiting, waiting, started, skipped or refused';
comment on column firings.watched is '1 while a sweep must read it again';
comment on column firings.made_at is 'When it was recorded';
comment on column firings.depth is 'How many triggers led to it, one after the other';
comment on column firings.run_id is 'The run that it started';
comment on column firings.source is 'The run whose event or end it is';
comment on column firings.backfill is 'The backfill that it belongs to';
comment on column firings.reason is 'Why no run was started';
comment on column firings.given is 'The input of the run, while it waits';

create table backfills (
    tenant text collate "C" not null,
    id text collate "C" not null,
    trigger_name text collate "C" not null,
    state text not null check (state in ('running', 'done', 'stopped')),
    since_at bigint not null,
    until_at bigint not null,
    cursor_at bigint not null,
    at_once integer not null check (at_once > 0),
    started integer not null,
    skipped integer not null,
    refused integer not null,
    created_at bigint not null,
    created_by text not null,
    ended_at bigint,
    primary key (tenant, id)
);

create index backfills_trigger on backfills (tenant, trigger_name, created_at, id);

comment on table backfills is 'Jobs that fire the moments of a range';
comment on column backfills.tenant is 'Whose row this is; part of every key';
comment on column backfills.id is 'Its id';
comment on column backfills.trigger_name is 'The trigger';
comment on column backfills.state is 'running, done or stopped';
comment on column backfills.since_at is 'The beginning of the range, inclusive (microseconds since 1970)';
comment on column backfills.until_at is 'The end of the range, exclusive';
comment on column backfills.cursor_at is 'The last moment that was handled';
comment on column backfills.at_once is 'How many of its runs live at a time';
comment on column backfills.started is 'How many runs it has started';
comment on column backfills.skipped is 'How many moments had fired before';
comment on column backfills.refused is 'How many runs could not be started';
comment on column backfills.created_at is 'When it was ordered';
comment on column backfills.created_by is 'The actor who ordered it';
comment on column backfills.ended_at is 'When it ended';

-- Sinks, the delivery cursors of runs, and what people did to them.
create table sinks (
    tenant text collate "C" not null,
    name text collate "C" not null,
    kind text not null,
    takes integer not null check (takes between 1 and 31),
    prefix text collate "C" not null,
    patterns text not null,
    options bytea not null,
    created_at bigint not null,
    created_by text not null,
    primary key (tenant, name)
);

comment on table sinks is 'Destinations of events';
comment on column sinks.tenant is 'Whose row this is; part of every key';
comment on column sinks.name is 'The name of the sink';
comment on column sinks.kind is 'What sends to it: webhook, jsonl, handler, host, or one that was added';
comment on column sinks.takes is 'What it takes, added up: 1 emitted, 2 dialect, 4 transitions, 8 endings, 16 workers';
comment on column sinks.prefix is 'The text that every event type for it begins with';
comment on column sinks.patterns is 'Patterns of event types as JSON';
comment on column sinks.options is 'Options of its kind as JSON; secrets by name';
comment on column sinks.created_at is 'When it was added or replaced (microseconds since 1970)';
comment on column sinks.created_by is 'The actor';

create table deliveries (
    tenant text collate "C" not null,
    run_id uuid not null,
    sink text collate "C" not null,
    takes integer not null check (takes between 1 and 15),
    last bigint not null,
    sent bigint not null,
    sent_number integer not null,
    attempts integer not null default 0,
    fence integer not null default 0,
    ready_at bigint,
    lease_until bigint,
    holder text,
    dead_at bigint,
    error text,
    target bytea,
    primary key (tenant, run_id, sink),
    constraint delivery_counters check (least(last, sent, sent_number, attempts, fence) >= 0),
    constraint delivery_dead_is_not_due check (dead_at is null or (ready_at is null and lease_until is null)),
    constraint delivery_lease_is_due check (lease_until is null or ready_at is not null),
    constraint delivery_is_not_stranded check (last <= sent or ready_at is not null or dead_at is not null)
) with (fillfactor = 70);

create index deliveries_ready on deliveries (tenant, sink, ready_at) where ready_at is not null;
create index deliveries_open on deliveries (tenant, sink, run_id) where ready_at is not null or dead_at is not null;
create index deliveries_dead on deliveries (tenant, sink, run_id) where dead_at is not null;

create trigger delivery_fence_only_grows after update of fence on deliveries for each row
    when (new.fence < old.fence)
    execute function stepkeep_refuse('the fence of a delivery only grows');

create trigger delivery_is_not_taken_back after update of sent, sent_number on deliveries for each row
    when ((new.sent, new.sent_number) < (old.sent, old.sent_number))
    execute function stepkeep_refuse('what was delivered stays delivered');

comment on table deliveries is 'Cursors: how far the events of a run were delivered to a sink';
comment on column deliveries.tenant is 'Whose row this is; part of every key';
comment on column deliveries.run_id is 'The run it belongs to: runs.id; for a worker, an id made of its name';
comment on column deliveries.sink is 'The sink: sinks.name, or webhook_url for an address of the run itself';
comment on column deliveries.takes is 'What the sink takes of this run, as in sinks';
comment on column deliveries.last is 'Sequence of the last journal entry that may have an event for it';
comment on column deliveries.sent is 'Sequence of the journal entry up to which all was delivered';
comment on column deliveries.sent_number is 'Number of the last delivered event of that entry; 2147483647 for all';
comment on column deliveries.attempts is 'Failed attempts of the first event that is left';
comment on column deliveries.fence is 'Number of the last claim; a report with an older one is refused';
comment on column deliveries.ready_at is 'From when a relay may claim it (microseconds since 1970)';
comment on column deliveries.lease_until is 'End of the lease of the relay that holds it';
comment on column deliveries.holder is 'The worker that claimed it last';
comment on column deliveries.dead_at is 'When its first event that is left was given up';
comment on column deliveries.error is 'Why the last attempt failed';
comment on column deliveries.target is 'JSON: where to, if the run itself says so; or the worker whose transitions they are';

create table delivery_actions (
    id bigint generated always as identity primary key,
    tenant text collate "C" not null,
    at bigint not null,
    actor text not null,
    action text not null,
    sink text not null,
    run_id uuid,
    seq bigint,
    number integer,
    reason text not null
);

create index delivery_actions_run on delivery_actions (tenant, run_id, id) where run_id is not null;
create index delivery_actions_tenant on delivery_actions (tenant, id);

create trigger delivery_action_never_changes after update on delivery_actions for each row
    execute function stepkeep_refuse('what people did to deliveries stays on record');

create trigger delivery_action_stays after delete on delivery_actions for each row
    execute function stepkeep_refuse('what people did to deliveries stays on record');

comment on table delivery_actions is 'What people did to sinks and deliveries';
comment on column delivery_actions.id is 'Order';
comment on column delivery_actions.tenant is 'Whose row this is';
comment on column delivery_actions.at is 'When (microseconds since 1970)';
comment on column delivery_actions.actor is 'The actor';
comment on column delivery_actions.action is 'sink_added, sink_removed, redriven or dropped';
comment on column delivery_actions.sink is 'The sink';
comment on column delivery_actions.run_id is 'The run, if it was about one';
comment on column delivery_actions.seq is 'Sequence of the event that was dropped or redriven';
comment on column delivery_actions.number is 'Number of that event';
comment on column delivery_actions.reason is 'The reason given';

-- Signatures over the ends of the journals of finished runs, made after the end by a process that has the key.
create table signed_heads (
    tenant text collate "C" not null,
    run_id uuid not null,
    key_id text collate "C" not null,
    entries bigint not null,
    head bytea not null,
    public_key text not null,
    signature text not null,
    signed_at bigint not null,
    primary key (run_id, key_id, tenant)
);

create trigger signed_head_never_changes after update on signed_heads for each row
    execute function stepkeep_refuse('a signature is only ever added');

comment on table signed_heads is 'Ed25519 signatures over the heads of finished runs, one for each key';
comment on column signed_heads.tenant is 'Whose row this is; part of every key';
comment on column signed_heads.run_id is 'The run';
comment on column signed_heads.key_id is 'The short name of the public key';
comment on column signed_heads.entries is 'How many entries the journal has';
comment on column signed_heads.head is 'The hash of its last entry';
comment on column signed_heads.public_key is 'The public key, in hexadecimal';
comment on column signed_heads.signature is 'The signature, in hexadecimal';
comment on column signed_heads.signed_at is 'When it was made (microseconds since 1970)';

-- Sessions of browsers: a key opened in a cookie. Of the cookie only a hash is kept.
create table sessions (
    tenant text collate "C" not null,
    id text collate "C" not null unique,
    owner text collate "C" not null,
    key text collate "C" not null,
    secret_hash text not null check (length(secret_hash) = 64),
    created_at bigint not null,
    expires_at bigint not null,
    ended_at bigint,
    primary key (tenant, id)
);

create index sessions_key on sessions (tenant, key, id) where ended_at is null;

create trigger ended_session_never_changes after update on sessions for each row
    when (old.ended_at is not null
        or (old.owner, old.key, old.secret_hash, old.created_at, old.expires_at)
            <> (new.owner, new.key, new.secret_hash, new.created_at, new.expires_at))
    execute function stepkeep_refuse('a session keeps its key and its limit, and ends once');

comment on table sessions is 'Sessions of browsers; of the cookie only a hash is kept';
comment on column sessions.tenant is 'Whose row this is; part of every key';
comment on column sessions.id is 'The public id of the session';
comment on column sessions.owner is 'The person who signed in: the owner of the key';
comment on column sessions.key is 'The id of the API key that the session acts with';
comment on column sessions.secret_hash is 'The SHA-256 of the secret in the cookie, in hexadecimal';
comment on column sessions.created_at is 'When the person signed in (microseconds since 1970)';
comment on column sessions.expires_at is 'From when on it is refused';
comment on column sessions.ended_at is 'When the person signed out';

-- The audit log: what was asked for with keys and through the service, and what was refused.
create table audit (
    tenant text collate "C" not null,
    id text collate "C" not null,
    at bigint not null,
    actor text collate "C" not null,
    key text,
    vouched_by text,
    operation text not null,
    target text collate "C" not null,
    outcome text not null,
    code text,
    request_id text,
    address text,
    seq bigint,
    hash text,
    primary key (tenant, at, id),
    constraint audit_outcome check (outcome in ('done', 'refused', 'failed')),
    constraint audit_seq check (seq > 0),
    constraint audit_hash check ((hash is null) = (seq is null))
);

create index audit_actor on audit (tenant, actor, at, id);
create index audit_target on audit (tenant, target, at, id);
create unique index audit_chain on audit (tenant, seq) where seq is not null;
create index audit_unchained on audit (tenant, at) where seq is null;

create trigger audit_never_changes after update on audit for each row
    execute function stepkeep_refuse('the audit log is only ever added to');

comment on table audit is 'What was asked for with keys and through the service, and what was refused';
comment on column audit.tenant is 'Whose row this is; part of every key';
comment on column audit.id is 'The id of the entry';
comment on column audit.at is 'When it happened (microseconds since 1970)';
comment on column audit.actor is 'The person or program that asked';
comment on column audit.key is 'The id of the API key; null without one';
comment on column audit.vouched_by is 'The owner of the key, where it named another person';
comment on column audit.operation is 'The operation of the engine';
comment on column audit.target is 'The run, user, key or other thing that it was about; empty if it names none';
comment on column audit.outcome is 'done, refused (not allowed) or failed (not possible)';
comment on column audit.code is 'The rule or the class of error of what was not done';
comment on column audit.request_id is 'The id of the HTTP request';
comment on column audit.address is 'The address of the HTTP client';
comment on column audit.seq is 'The place in the chain of the tenant; null for entries of earlier versions';
comment on column audit.hash is 'The SHA-256 over the hash of the entry before and this entry, in hex';

create table quota_scopes (
    tenant text collate "C" not null,
    scope text collate "C" not null,
    primary key (tenant, scope)
);

comment on table quota_scopes is 'What a quota of runs is counted for: a key, or the whole tenant; its row is the lock';
comment on column quota_scopes.tenant is 'Whose row this is; part of every key';
comment on column quota_scopes.scope is 'key and the id of the key, or tenant';

create table quota_runs (
    tenant text collate "C" not null,
    scope text collate "C" not null,
    run_id uuid not null,
    taken_at bigint not null,
    primary key (tenant, scope, run_id)
);

comment on table quota_runs is 'Runs that count against a quota; rows of ended runs are deleted by the next start';
comment on column quota_runs.tenant is 'Whose row this is; part of every key';
comment on column quota_runs.scope is 'What it is counted for';
comment on column quota_runs.run_id is 'The run, which may not exist yet';
comment on column quota_runs.taken_at is 'When its place was taken (microseconds since 1970)';

-- Jobs that act on many runs, and what became of each run.
create table jobs (
    tenant text collate "C" not null,
    id text collate "C" not null,
    action text not null check (action in ('cancel', 'rerun', 'pause', 'resume', 'migrate')),
    state text not null check (state in ('running', 'done', 'stopped')),
    options bytea not null,
    created_at bigint not null,
    created_by text not null,
    vouched_by text,
    api_key text,
    idempotency_key text collate "C",
    digest bytea not null,
    seq bigint not null check (seq >= 0),
    lease_until bigint not null,
    holder text,
    ended_at bigint,
    scope text collate "C" not null default '',
    primary key (tenant, id),
    constraint ended_job_has_a_time check ((state = 'running') = (ended_at is null))
);

create unique index jobs_key on jobs (tenant, idempotency_key, scope) where idempotency_key is not null;
create index jobs_due on jobs (lease_until) where state = 'running';

comment on table jobs is 'Jobs that act on many runs: cancel, rerun, pause, resume or migrate; workers carry them out';
comment on column jobs.tenant is 'Whose row this is; part of every key';
comment on column jobs.id is 'The id of the job';
comment on column jobs.action is 'What is done to each run: cancel, rerun, pause, resume or migrate';
comment on column jobs.state is 'running, done or stopped';
comment on column jobs.options is 'What the action is given (JSON)';
comment on column jobs.created_at is 'When it was made (microseconds since 1970)';
comment on column jobs.created_by is 'Who asked for it';
comment on column jobs.vouched_by is 'The program that vouched for that person; null: none';
comment on column jobs.api_key is 'The id of the API key that was used; null: none';
comment on column jobs.idempotency_key is 'The key under which it was asked for; null: none';
comment on column jobs.digest is 'SHA-256 of what was asked for, to tell a repeated request from another one';
comment on column jobs.seq is 'The fence: grows with every claim by a worker';
comment on column jobs.lease_until is 'Until when a worker holds it (microseconds since 1970)';
comment on column jobs.holder is 'The worker that holds it; null: none';
comment on column jobs.ended_at is 'When it was done or stopped (microseconds since 1970); null: it runs';
comment on column jobs.scope is 'Whose idempotency key it is: the first API key of a line, or tenant; empty: of any caller';

create table job_runs (
    tenant text collate "C" not null,
    job_id text collate "C" not null,
    run_id uuid not null,
    state text not null check (state in ('waiting', 'done', 'unchanged', 'refused')),
    detail text,
    new_run_id text,
    primary key (tenant, job_id, run_id)
);

create index job_runs_waiting on job_runs (tenant, job_id, run_id) where state = 'waiting';

comment on table job_runs is 'The runs of a job, fixed when it was made, and what became of each';
comment on column job_runs.tenant is 'Whose row this is; part of every key';
comment on column job_runs.job_id is 'The job';
comment on column job_runs.run_id is 'The run to act on';
comment on column job_runs.state is 'waiting, done, unchanged or refused';
comment on column job_runs.detail is 'Why it was refused or unchanged; null: nothing to say';
comment on column job_runs.new_run_id is 'With rerun: the new run; null: none';

-- Adoptions: which run took the result of which step of an earlier run, and which of them undoes it.
--
-- A run that a live run adopted from is kept by retention. At most one run owns the undo of a step.
create table adoptions (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null check (no >= 0),
    source_run uuid not null,
    source_step text collate "C" not null,
    owned integer not null check (owned in (0, 1)),
    primary key (tenant, run_id, no),
    constraint adoption_of_another check (run_id <> source_run)
);

create unique index adoptions_one_owner on adoptions (tenant, source_run, source_step) where owned = 1;
create index adoptions_by_source on adoptions (tenant, source_run);

create trigger adoption_keeps_its_source after update on adoptions for each row
    when (old.source_run <> new.source_run or old.source_step <> new.source_step or new.owned > old.owned)
    execute function stepkeep_refuse('an adoption keeps its source, and gives the undo away once');

create trigger unfinished_run_keeps_its_adoptions after delete on adoptions
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the adoptions of a finished run can be deleted');

comment on table adoptions is 'Finished steps that a run took from an earlier one';
comment on column adoptions.tenant is 'Whose runs they are';
comment on column adoptions.run_id is 'The run that took the result';
comment on column adoptions.no is 'The number of the step in the plan of that run';
comment on column adoptions.source_run is 'The run that executed the step';
comment on column adoptions.source_step is 'The name of the step there';
comment on column adoptions.owned is '1 if the run undoes the step in a rollback; at most one run does';

-- Child runs: which step asked for which run, how far that is, and what is left to do about it.
--
-- A parent asks for a child, or calls it back, in the transaction of its own decision. A child starts in the transaction
-- that finds its row still requested. Its end is written here in its own transaction, and told to the parent later.
create table children (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null check (no >= 0),
    activation bigint not null check (activation > 0),
    child_id uuid not null,
    workflow text not null,
    version integer not null check (version > 0),
    mode text not null,
    state text not null,
    requested_at bigint not null,
    started_at bigint,
    recall text,
    recalled_at bigint,
    ended_at bigint,
    outcome text,
    category text,
    error text,
    todo text,
    todo_at bigint,
    undoes uuid,
    primary key (tenant, run_id, no, activation),
    constraint child_mode check (mode in ('awaited', 'detached')),
    constraint child_state check (state in ('requested', 'started', 'withdrawn', 'refused', 'ended')),
    constraint child_recall check (
        (recall is null or recall in ('cancel', 'undo')) and (recall is null) = (recalled_at is null)),
    constraint child_end check ((state = 'ended') = (outcome is not null)),
    constraint child_outcome check (outcome is null or outcome in ('succeeded', 'failed', 'cancelled', 'rolled_back')),
    constraint child_category check (category is null or category in (
        'transient', 'external', 'timeout', 'agent', 'unknown', 'validation', 'governance', 'auth', 'conflict',
        'poison')),
    constraint child_todo check (
        (todo is null) = (todo_at is null)
        and case todo when 'start' then state = 'requested' when 'cancel' then state = 'started'
            when 'tell' then state in ('withdrawn', 'refused', 'ended') else todo is null end)
);

create unique index children_child on children (tenant, child_id);
create index children_todo on children (todo_at) where todo is not null;

create trigger unfinished_run_keeps_its_children after delete on children
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the links to children of a finished run can be deleted');

comment on table children is 'Child runs: which step asked for which run, and what is left to do about it';
comment on column children.tenant is 'Whose run it is';
comment on column children.run_id is 'The parent';
comment on column children.no is 'The number of the step in the plan of the parent';
comment on column children.activation is 'The sequence of the journal entry of the parent that asked for the child';
comment on column children.child_id is 'The run of the child';
comment on column children.workflow is 'The workflow of the child';
comment on column children.version is 'The version of the workflow, pinned when the parent was published';
comment on column children.mode is 'awaited or detached';
comment on column children.state is 'requested, started, withdrawn, refused or ended';
comment on column children.requested_at is 'When the parent asked for it';
comment on column children.started_at is 'When its run was created';
comment on column children.recall is 'cancel or undo, if the parent called it back';
comment on column children.recalled_at is 'When the parent called it back';
comment on column children.ended_at is 'When it ended';
comment on column children.outcome is 'The state in which it ended';
comment on column children.category is 'The category of its failure';
comment on column children.error is 'Its error';
comment on column children.todo is 'What is left to do: start, cancel or tell';
comment on column children.todo_at is 'When that is to be done';
comment on column children.undoes is 'The earlier child that it rolls back';

-- Execution slots: runs under a limit on running runs, waiting or granted. A slot is held until its run has ended.
create table slots (
    tenant text collate "C" not null,
    run_id uuid not null,
    workflow text collate "C" not null,
    most integer check (most is null or most > 0),
    priority integer not null,
    asked_at bigint not null,
    granted_at bigint,
    primary key (tenant, run_id)
);

create index slots_waiting on slots (tenant, workflow, priority desc, asked_at, run_id) where granted_at is null;
create index slots_granted on slots (tenant, workflow, run_id) where granted_at is not null;

create trigger slot_is_granted_once after update on slots for each row
    when (old.granted_at is not null or new.granted_at is null)
    execute function stepkeep_refuse('a slot is granted to a run once');

create trigger unfinished_run_keeps_its_slot after delete on slots
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the slot of a finished run can be deleted');

comment on table slots is 'Runs under a limit on running runs: those that wait for an execution slot, and those that hold one';
comment on column slots.tenant is 'Whose run it is';
comment on column slots.run_id is 'The run';
comment on column slots.workflow is 'Its workflow';
comment on column slots.most is 'How many runs of the workflow may hold a slot, by the definition of the run; null: no limit';
comment on column slots.priority is 'The priority of the run: higher ones are granted a slot first';
comment on column slots.asked_at is 'When the run was to start (microseconds since 1970): the order of arrival';
comment on column slots.granted_at is 'When it was granted a slot; null while it waits';

-- Resources that steps hold while a worker holds them: exclusive, shared, or units of a pool.
create table resource_holds (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null,
    fence integer not null check (fence > 0),
    resource text collate "C" not null,
    step text not null,
    mode text not null check (mode in ('exclusive', 'shared', 'units')),
    units bigint not null check ((units > 0) = (mode = 'units') and units >= 0),
    held_at bigint not null,
    primary key (tenant, resource, run_id, no)
);

create unique index resource_is_exclusive on resource_holds (tenant, resource) where mode = 'exclusive';
create index resource_holds_of_run on resource_holds (tenant, run_id);

comment on table resource_holds is 'Resources that steps hold; a row counts while its step is held under the same fence';
comment on column resource_holds.tenant is 'Whose step it is';
comment on column resource_holds.run_id is 'The run of the step';
comment on column resource_holds.no is 'The number of the step';
comment on column resource_holds.fence is 'The fence of the claim: the row is void once the step is held under another, or not held';
comment on column resource_holds.resource is 'The name of the resource';
comment on column resource_holds.step is 'The name of the step';
comment on column resource_holds.mode is 'exclusive, shared, or units of a pool';
comment on column resource_holds.units is 'How many units of a pool; 0 in the other modes';
comment on column resource_holds.held_at is 'When the step was claimed (microseconds since 1970)';

create table audit_heads (
    tenant text collate "C" primary key,
    seq bigint not null,
    hash text not null,
    forgotten bigint not null,
    anchor text not null,
    constraint audit_head_hash check (length(hash) = 64),
    constraint audit_head_order check (seq >= forgotten)
);

comment on table audit_heads is 'Where the chain over the audit log of a tenant ends, and where what is kept of it begins';
comment on column audit_heads.tenant is 'Whose row this is; part of every key';
comment on column audit_heads.seq is 'The last entry of the chain';
comment on column audit_heads.hash is 'Its hash';
comment on column audit_heads.forgotten is 'The last entry that retention has deleted; 0 if none';
comment on column audit_heads.anchor is 'Its hash; empty if none';

comment on table migrations is 'Migrations that were applied to this schema';
comment on column migrations.version is 'Number of the migration';
comment on column migrations.name is 'Name of the migration';
comment on column migrations.checksum is 'SHA-256 of its text';
comment on column migrations.applied_at is 'When it was applied (microseconds since 1970)';

-- What rows may say. Each table has one function for all its rules rather than a constraint for each: the server reads and
-- plans a constraint anew with every statement, which was a quarter of the time of a small write, and keeps a function.
-- Rows of the commonest shapes are seen to be sound without calling it. A rule that is broken is named as a constraint
-- would be. Only built-in functions are called, because a restored dump checks its rows with an empty search path.
create function stepkeep_run_is_sound(run runs) returns boolean language plpgsql immutable as $$
declare
    broken constant text := case
        when run.state not in (
            'idle', 'queued', 'running', 'blocked', 'paused', 'validating', 'stopping', 'compensating',
            'succeeded', 'failed', 'cancelled', 'rolled_back') then 'run_state'
        when run.cause not in ('failure', 'timeout', 'cancel') then 'run_cause'
        when run.policy not in ('abort', 'skip', 'continue', 'compensate') then 'run_policy'
        when run.category not in (
            'transient', 'external', 'timeout', 'agent', 'unknown', 'validation', 'governance', 'auth', 'conflict',
            'poison') then 'run_category'
        when run.rollback not in ('none', 'complete', 'partial') then 'run_rollback'
        when least(run.seq, run.open, run.moving, run.leased, run.failed, run.undoing, run.inbox) < 0
            then 'run_counters'
        when (run.ended_at is not null) <> (run.state in ('succeeded', 'failed', 'cancelled', 'rolled_back'))
            then 'finished_run_has_an_end'
        when run.ended_at is not null
            and (run.due_at is not null or run.open <> 0 or run.moving <> 0 or run.leased <> 0 or run.undoing <> 0)
            then 'finished_run_is_at_rest'
        when run.cause is null and run.state in ('stopping', 'compensating', 'failed', 'cancelled', 'rolled_back')
            then 'troubled_run_has_a_cause'
        when run.leased > run.moving then 'leased_steps_are_moving'
    end;
begin
    if broken is null then
        return true;
    end if;
    raise exception using errcode = 'check_violation', table = 'runs', constraint = broken,
        message = format('a row of runs breaks the rule "%s"', broken);
end $$;

alter table runs add constraint run_is_sound check (
    (cause is null and policy is null and category is null and rollback = 'none'
        and least(seq, open, moving - leased, leased, failed, undoing, inbox) >= 0
        and case state
            when 'running' then ended_at is null
            when 'succeeded' then ended_at is not null and due_at is null and greatest(open, moving, undoing) = 0
            when 'queued' then ended_at is null
            else false
        end)
    or stepkeep_run_is_sound(runs));

create function stepkeep_step_is_sound(step steps) returns boolean language plpgsql immutable as $$
declare
    broken text := case
        when step.state not in (
            'pending', 'ready', 'running', 'validating', 'retrying', 'awaiting_approval', 'awaiting_event',
            'awaiting_completion', 'awaiting_children', 'succeeded', 'failed', 'skipped', 'cancelled') then 'step_state'
        when step.category not in (
            'transient', 'external', 'timeout', 'agent', 'unknown', 'validation', 'governance', 'auth', 'conflict',
            'poison') then 'step_category'
        when least(step.no, step.fence, step.attempts, step.losses, step.unmet) < 0 then 'step_counters'
        when step.state = 'ready' and step.ready_at is null then 'ready_step_is_claimable'
        when step.ready_at is not null
            and (step.state not in ('ready', 'validating') or step.worker is not null or step.queue <= 0)
            then 'claimable_step_may_be_claimed'
        when step.state = 'running' and step.worker is null then 'running_step_is_leased'
        when step.state = 'validating' and (step.worker is null) <> (step.ready_at is not null)
            then 'validating_step_is_leased_or_claimable'
        when (step.worker is not null or step.claimed_at is not null)
            and (step.state not in ('running', 'validating') or step.fence <= 0 or step.worker is null
                or step.claimed_at is null or step.due_at is null) then 'lease_is_whole'
        when step.due_at is not null and step.worker is null
            and step.state not in (
                'retrying', 'awaiting_approval', 'awaiting_event', 'awaiting_completion', 'awaiting_children')
            then 'timer_has_a_meaning'
        when step.state = 'retrying' and step.due_at is null then 'retrying_step_has_a_timer'
        when (step.settled is not null) <> (step.state in ('succeeded', 'failed', 'skipped', 'cancelled'))
            then 'settled_step_has_its_place'
        when step.note is null and step.state = 'awaiting_event' then 'waiting_step_names_its_event'
        when step.note is null and step.state = 'awaiting_completion' then 'waiting_step_has_a_token'
    end;
begin
    if broken is null then
        if step.note is null then
            return true;
        end if;
        begin
            broken := case
                when step.note::json is null then 'note_is_json'
                when step.state = 'awaiting_event' and coalesce(step.note::json ->> 'event', '') = ''
                    then 'waiting_step_names_its_event'
                when step.state = 'awaiting_completion' and coalesce(step.note::json ->> 'token', '') = ''
                    then 'waiting_step_has_a_token'
            end;
        exception when invalid_text_representation then
            broken := 'note_is_json';
        end;
        if broken is null then
            return true;
        end if;
    end if;
    raise exception using errcode = 'check_violation', table = 'steps', constraint = broken,
        message = format('a row of steps breaks the rule "%s"', broken);
end $$;

alter table steps add constraint step_is_sound check (
    (category is null and note is null and least(no, fence, attempts, losses, unmet) >= 0
        and case state
            when 'running' then fence > 0 and coalesce(ready_at, settled) is null
                and worker is not null and claimed_at is not null and due_at is not null
            when 'succeeded' then settled is not null and coalesce(ready_at, due_at, claimed_at, worker) is null
            when 'pending' then coalesce(ready_at, due_at, claimed_at, settled, worker) is null
            when 'ready' then ready_at is not null and queue > 0
                and coalesce(due_at, claimed_at, settled, worker) is null
            else false
        end)
    or stepkeep_step_is_sound(steps));

-- Of an attempt the columns that have rules, because its row carries an output of any size.
create function stepkeep_attempt_is_sound(state text, category text, fence integer, number integer) returns boolean
    language plpgsql immutable as $$
declare
    broken constant text := case
        when state not in ('succeeded', 'failed', 'timed_out', 'lost', 'cancelled', 'waited', 'released')
            then 'attempt_state'
        when category not in (
            'transient', 'external', 'timeout', 'agent', 'unknown', 'validation', 'governance', 'auth', 'conflict',
            'poison') then 'attempt_category'
        when fence <= 0 or number < 0 then 'attempt_counters'
    end;
begin
    if broken is null then
        return true;
    end if;
    raise exception using errcode = 'check_violation', table = 'attempts', constraint = broken,
        message = format('a row of attempts breaks the rule "%s"', broken);
end $$;

alter table attempts add constraint attempt_is_sound check (
    (state = 'succeeded' and category is null and fence > 0 and number >= 0)
    or stepkeep_attempt_is_sound(state, category, fence, number));

-- Weeks of the journal. Attaching a week that was made aside holds up neither readers nor writers of other weeks; a week
-- some of whose runs went into the default partition before it was made stays there.
create function stepkeep_run_ids_from(at bigint) returns uuid language sql immutable strict parallel safe
    return (lpad(to_hex(at / 1000), 12, '0') || '00000000000000000000')::uuid;

create function stepkeep_extend_journal(weeks integer) returns integer language plpgsql as $$
declare
    week constant bigint := 604800000000;
    monday constant bigint := 345600000000;
    first_week constant bigint := monday + (stepkeep_now() - monday) / week * week;
    begins bigint;
    part text;
    made integer := 0;
    bounds text;
begin
    for ahead in 0 .. weeks loop
        begins := first_week + ahead * week;
        part := 'journal_' || to_char(to_timestamp(begins / 1000000) at time zone 'UTC', 'YYYYMMDD');
        if to_regclass(part) is not null then
            continue;
        end if;
        if exists (
            select from journal_default
            where run_id >= stepkeep_run_ids_from(begins) and run_id < stepkeep_run_ids_from(begins + week)
        ) then
            continue;
        end if;
        bounds := format(
            'from (%L) to (%L)', stepkeep_run_ids_from(begins), stepkeep_run_ids_from(begins + week));
        execute format(
            'create table %I (like journal including all) with (autovacuum_vacuum_insert_scale_factor = 0.1)', part);
        -- Whoever deletes from a week by its own name meets no trigger of the journal's statements.
        execute format(
            'create trigger unfinished_run_keeps_its_journal after delete on %I referencing old table as gone'
            ' for each statement execute function stepkeep_keep_unfinished(%L)',
            part, 'only the journal of a finished run can be deleted');
        execute format('alter table journal attach partition %I for values %s', part, bounds);
        made := made + 1;
    end loop;
    return made;
end $$;

-- Weeks that have passed and take no room any more: retention has deleted their rows and vacuum has given the pages back.
-- Dropping one locks the journal for a moment, so whoever calls this sets a short lock_timeout.
create function stepkeep_drop_empty_weeks() returns integer language plpgsql as $$
declare
    part text;
    is_empty boolean;
    dropped integer := 0;
begin
    for part in
        select child.relname
        from pg_inherits
        join pg_class as child on child.oid = pg_inherits.inhrelid
        where pg_inherits.inhparent = to_regclass('journal')
            and child.relname ~ '^journal_\d{8}$'
            and pg_relation_size(child.oid) = 0
            and child.relname <= 'journal_' || to_char(
                to_timestamp(stepkeep_now() / 1000000) at time zone 'UTC' - interval '8 days', 'YYYYMMDD')
    loop
        lock table journal in access exclusive mode;
        execute format('select not exists (select from %I)', part) into is_empty;
        if is_empty then
            execute format('drop table %I', part);
            dropped := dropped + 1;
        end if;
    end loop;
    return dropped;
end $$;

-- Neither waits long for a lock, also when it is called by hand.
alter function stepkeep_extend_journal(integer) set lock_timeout = '200ms';
alter function stepkeep_drop_empty_weeks() set lock_timeout = '200ms';

-- For people: views with timestamps, names and JSON. The engine reads none of them.

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

-- Row-level security for roles that act for one tenant at a time. It is off until the owner confines the first such role.
--
-- `stepkeep db grants ROLE --as api` prints the call of stepkeep_confine. Every table with a column `tenant` is confined,
-- those of later migrations too, when the owner runs the grants again. The owner and the other roles see all rows.

-- The tenant of this transaction. An unset tenant is an error, never "no rows".
create function stepkeep_tenant() returns text language plpgsql stable parallel safe
set search_path = pg_catalog, pg_temp as $$
declare
    name constant text := current_setting('stepkeep.tenant', true);
begin
    if name is null or name = '' then
        raise exception 'the setting stepkeep.tenant is not set in this transaction' using errcode = 'insufficient_privilege';
    end if;
    return name;
end;
$$;

-- What a confined role may learn about other tenants: the tenant of a key or of a session, by its id, and their names.
-- The bodies are bound to their tables now, so that no search path reaches into them.
create function stepkeep_tenant_of_key(text) returns text language sql stable security definer
set search_path = pg_catalog, pg_temp
return (select tenant from api_keys where id = $1);

create function stepkeep_tenant_of_session(text) returns text language sql stable security definer
set search_path = pg_catalog, pg_temp
return (select tenant from sessions where id = $1);

create function stepkeep_tenant_names(integer) returns setof text language sql stable security definer
set search_path = pg_catalog, pg_temp
begin atomic
    select name from tenants order by name limit $1;
end;

revoke execute on function stepkeep_tenant_of_key(text), stepkeep_tenant_of_session(text), stepkeep_tenant_names(integer)
    from public;

-- Confine a role to the rows of one tenant in every table that has a tenant, and return the number of tables that changed.
-- A table that is confined already is not locked.
create function stepkeep_confine(home regnamespace, who regrole) returns integer language plpgsql volatile
set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
    confined record;
    changed integer := 0;
begin
    if (select rolsuper or rolbypassrls from pg_roles where oid = who) then
        raise exception 'the role % bypasses row-level security: it is a superuser or has BYPASSRLS', who;
    end if;
    for confined in
        select format('%s.%I', home, relname) as name, relname, relowner, attname, polroles,
            relrowsecurity and relforcerowsecurity as has_security
        from pg_class
        join pg_attribute on attrelid = pg_class.oid and attnum > 0 and not attisdropped
            and attname = case when relname = 'tenants' then 'name' else 'tenant' end
        left join pg_policy on polrelid = pg_class.oid and polname = 'stepkeep_own_tenant'
        where relnamespace = home and relkind in ('r', 'p') and not relispartition
        order by relname
    loop
        if pg_has_role(who, confined.relowner, 'member') then
            raise exception 'the role % has the rights of %, which owns the tables', who, confined.relowner::regrole;
        end if;
        continue when confined.has_security and who::oid = any (confined.polroles);
        changed := changed + 1;
        if not confined.has_security then
            execute format('alter table %s enable row level security, force row level security', confined.name);
        end if;
        if confined.polroles is null then
            execute format('drop policy if exists stepkeep_all_tenants on %s', confined.name);
            execute format('create policy stepkeep_all_tenants on %s using (true)', confined.name);
            execute format(
                'create policy stepkeep_own_tenant on %s as restrictive to %s using (%I = (select %s.stepkeep_tenant()))',
                confined.name, who, confined.attname, home);
        elsif who::oid <> all (confined.polroles) then
            execute format(
                'alter policy stepkeep_own_tenant on %s to %s', confined.name,
                (select string_agg(role::regrole::text, ', ') from unnest(confined.polroles || who::oid) as role));
        end if;
    end loop;
    return changed;
end;
$$;
