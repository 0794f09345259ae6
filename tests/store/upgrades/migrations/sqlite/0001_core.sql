-- The core: definitions and queues, runs with their steps, attempts, journal and messages, keys, and workers.
--
-- Times are microseconds, states are text, payloads are the bytes of JSON text. Every key of a run's rows leads with
-- the tenant. What the kernel never writes, the schema refuses: each state's line says what its row must hold, and
-- the triggers keep finished things finished and the record unchanged. States are told apart by CASE, not IN: for a
-- list in a CHECK, SQLite builds a little table each time a row is written, which doubles the cost of the row.

create table definitions (
    id           integer primary key autoincrement,
    tenant       text not null,
    name         text not null,
    version      integer not null,
    dialect      text not null,
    digest       text not null,
    document     blob not null,
    queues       text not null,
    published_at integer not null,
    published_by text not null,
    unique (tenant, name, version)
) strict;

create table queues (
    id     integer primary key autoincrement,
    tenant text not null,
    spec   text not null,
    unique (tenant, spec)
) strict;

create table runs (
    tenant        text not null,
    id            text not null,
    definition_id integer not null,
    state         text not null,
    priority      integer not null,
    seq           integer not null check (seq >= 0),
    head          blob not null,
    open          integer not null check (open >= 0),
    moving        integer not null check (moving >= 0),
    leased        integer not null check (leased >= 0),
    failed        integer not null check (failed >= 0),
    undoing       integer not null check (undoing >= 0),
    inbox         integer not null check (inbox >= 0),
    cause         text,
    policy        text,
    category      text,
    error         text,
    rollback      text not null,
    due_at        integer,
    started_at    integer,
    ended_at      integer,
    business_key  text,
    moved_at      integer not null,
    primary key (tenant, id),
    constraint run_state check (case state
        when 'idle'         then ended_at is null
        when 'queued'       then ended_at is null
        when 'running'      then ended_at is null
        when 'blocked'      then ended_at is null
        when 'validating'   then ended_at is null
        when 'stopping'     then ended_at is null and cause is not null
        when 'compensating' then ended_at is null and cause is not null
        when 'succeeded'    then ended_at is not null and due_at is null
        when 'failed'       then ended_at is not null and due_at is null and cause is not null
        when 'cancelled'    then ended_at is not null and due_at is null and cause is not null
        when 'rolled_back'  then ended_at is not null and due_at is null and cause is not null
        else false end),
    constraint finished_run_is_at_rest check (
        ended_at is null or (open = 0 and moving = 0 and leased = 0 and undoing = 0)),
    constraint leased_steps_are_moving check (leased <= moving),
    constraint run_cause check (cause is null or cause in ('failure', 'timeout', 'cancel')),
    constraint run_policy check (policy is null or policy in ('abort', 'skip', 'continue', 'compensate')),
    constraint run_category check (category is null or category in (
        'transient', 'external', 'timeout', 'agent', 'unknown', 'validation', 'governance', 'auth', 'conflict',
        'poison')),
    constraint run_rollback check (rollback = 'none' or rollback = 'complete' or rollback = 'partial')
) strict, without rowid;

create index runs_due on runs (due_at) where due_at is not null;
create index runs_live on runs (tenant, id) where ended_at is null;
create index runs_troubled on runs (tenant, id) where cause is not null;

create table run_details (
    tenant         text not null,
    run_id         text not null,
    workflow       text not null,
    version        integer not null,
    dialect        text not null,
    input          blob not null,
    correlation_id text not null,
    created_at     integer not null,
    created_by     text not null,
    business_key   text,
    rerun_of       text,
    labels         blob,
    primary key (tenant, run_id)
) strict;

create index run_details_workflow on run_details (tenant, workflow, run_id);
create index run_details_business_key on run_details (tenant, business_key, run_id) where business_key is not null;
create index run_details_correlation on run_details (tenant, correlation_id, run_id) where correlation_id <> run_id;

create table steps (
    tenant     text not null,
    run_id     text not null,
    no         integer not null check (no >= 0),
    queue      integer not null,
    priority   integer not null,
    state      text not null,
    ready_at   integer,
    due_at     integer,
    fence      integer not null check (fence >= 0),
    worker     integer,
    claimed_at integer,
    attempts   integer not null check (attempts >= 0),
    losses     integer not null check (losses >= 0),
    unmet      integer not null check (unmet >= 0),
    settled    integer,
    category   text,
    error      text,
    note       text check (note is null or json_valid(note)),
    primary key (tenant, run_id, no),
    constraint step_state check (case state
        when 'pending'    then ready_at is null and due_at is null and worker is null and settled is null
        when 'ready'      then ready_at is not null and due_at is null and worker is null and settled is null
        when 'running'    then ready_at is null and due_at is not null and worker is not null and settled is null
        when 'validating' then (ready_at is null) = (worker is not null)
                               and (due_at is not null) = (worker is not null) and settled is null
        when 'retrying'   then ready_at is null and due_at is not null and worker is null and settled is null
        when 'awaiting_approval'   then ready_at is null and worker is null and settled is null
        when 'awaiting_event'      then ready_at is null and worker is null and settled is null
                                        and ifnull(note ->> 'event', '') <> ''
        when 'awaiting_completion' then ready_at is null and worker is null and settled is null
                                        and ifnull(note ->> 'token', '') <> ''
        when 'succeeded'  then ready_at is null and due_at is null and worker is null and settled is not null
        when 'failed'     then ready_at is null and due_at is null and worker is null and settled is not null
        when 'skipped'    then ready_at is null and due_at is null and worker is null and settled is not null
        when 'cancelled'  then ready_at is null and due_at is null and worker is null and settled is not null
        else false end),
    constraint lease_is_whole check ((worker is null) = (claimed_at is null) and (worker is null or fence > 0)),
    constraint gate_is_never_claimed check (ready_at is null or queue > 0),
    constraint step_category check (category is null or category in (
        'transient', 'external', 'timeout', 'agent', 'unknown', 'validation', 'governance', 'auth', 'conflict',
        'poison'))
) strict, without rowid;

create index steps_claim on steps (queue, priority desc, ready_at, run_id, no) where ready_at is not null;
create index steps_due on steps (due_at) where due_at is not null;

create table attempts (
    tenant     text not null,
    run_id     text not null,
    no         integer not null,
    fence      integer not null check (fence > 0),
    number     integer not null check (number >= 0),
    state      text not null,
    worker     integer not null,
    started_at integer not null,
    ended_at   integer not null,
    category   text,
    error      text,
    output     blob,
    cost       blob,
    primary key (tenant, run_id, no, fence),
    constraint attempt_state check (case state
        when 'succeeded' then true
        when 'failed'    then true
        when 'timed_out' then true
        when 'lost'      then true
        when 'cancelled' then true
        when 'waited'    then true
        when 'released'  then true
        else false end),
    constraint attempt_category check (category is null or category in (
        'transient', 'external', 'timeout', 'agent', 'unknown', 'validation', 'governance', 'auth', 'conflict',
        'poison'))
) strict;

create table journal (
    tenant text not null,
    run_id text not null,
    seq    integer not null check (seq > 0),
    at     integer not null,
    body   blob not null,
    hash   blob not null check (length(hash) = 32),
    primary key (tenant, run_id, seq)
) strict;

create table messages (
    tenant      text not null,
    run_id      text not null,
    id          text not null,
    number      integer not null,
    name        text not null,
    payload     blob not null,
    sender      text not null,
    arrived_at  integer not null,
    consumed_by integer,
    primary key (tenant, run_id, number),
    unique (tenant, run_id, id)
) strict, without rowid;

create table outbox (
    tenant     text not null,
    run_id     text not null,
    seq        integer not null,
    number     integer not null,
    name       text not null,
    payload    blob not null,
    created_at integer not null,
    primary key (tenant, run_id, seq, number)
) strict, without rowid;

create table idempotency_keys (
    tenant      text not null,
    operation   text not null,
    key         text not null,
    fingerprint text not null,
    run_id      text not null,
    primary key (tenant, operation, key)
) strict, without rowid;

create index idempotency_keys_run on idempotency_keys (tenant, run_id);

create table business_keys (
    tenant text not null,
    key    text not null,
    run_id text not null,
    primary key (tenant, key)
) strict, without rowid;

create table workers (
    no           integer primary key autoincrement,
    tenant       text not null,
    id           text not null,
    state        text not null,
    incarnation  integer not null check (incarnation >= 0),
    capacity     integer not null check (capacity >= 0),
    capabilities text not null,
    queues       text not null,
    heard_at     integer not null,
    started_at   integer not null,
    seq          integer not null check (seq >= 0),
    head         blob not null,
    unique (tenant, id),
    constraint worker_state check (state in ('initializing', 'idle', 'busy', 'unresponsive', 'draining', 'shutdown'))
) strict;

create index workers_living on workers (tenant, no) where state <> 'shutdown';

create table worker_journal (
    tenant    text not null,
    worker_id text not null,
    seq       integer not null check (seq > 0),
    at        integer not null,
    body      blob not null,
    hash      blob not null check (length(hash) = 32),
    primary key (tenant, worker_id, seq)
) strict;

-- Finished is final.

create trigger finished_run_never_changes before update on runs
when old.ended_at is not null or new.seq < old.seq
begin
    select raise(abort, 'a finished run never changes, and the journal of a run only grows');
end;

create trigger finished_step_never_changes before update on steps
when old.settled is not null or new.fence < old.fence
begin
    select raise(abort, 'a finished step never changes, and its fence only grows');
end;

create trigger consumed_message_never_changes before update on messages
when old.consumed_by is not null
begin
    select raise(abort, 'a consumed message never changes');
end;

-- The record is only ever added to.

create trigger journal_never_changes before update on journal
begin
    select raise(abort, 'the journal is only ever added to');
end;

create trigger worker_journal_never_changes before update on worker_journal
begin
    select raise(abort, 'the journal of a worker is only ever added to');
end;

create trigger attempt_never_changes before update on attempts
begin
    select raise(abort, 'an attempt is written once, when it ends');
end;

-- A finished run may be deleted for good; an unfinished one loses nothing.

create trigger unfinished_run_stays before delete on runs
when old.ended_at is null
begin
    select raise(abort, 'only a finished run can be deleted');
end;

create trigger unfinished_run_keeps_its_steps before delete on steps
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the steps of a finished run can be deleted');
end;

create trigger unfinished_run_keeps_its_attempts before delete on attempts
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the attempts of a finished run can be deleted');
end;

create trigger unfinished_run_keeps_its_journal before delete on journal
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the journal of a finished run can be deleted');
end;

create trigger living_worker_keeps_its_journal before delete on worker_journal
when exists (select 1 from workers where tenant = old.tenant and id = old.worker_id and state <> 'shutdown')
begin
    select raise(abort, 'only the journal of a worker that was shut down can be deleted');
end;
