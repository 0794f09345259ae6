-- The core: definitions and queues, runs with their steps, attempts, journal and messages, keys, and workers.
--
-- Times are microseconds, states are text, payloads are the bytes of JSON text. Every key of a run's rows leads with
-- the tenant. What the kernel never writes, the schema refuses: each CHECK states one rule of the kernel's rows, and
-- the triggers keep finished things finished and the record unchanged.

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
    primary key (tenant, id),
    constraint run_state check (state in (
        'idle', 'queued', 'running', 'blocked', 'validating', 'stopping', 'compensating',
        'succeeded', 'failed', 'cancelled', 'rolled_back')),
    constraint run_cause check (cause in ('failure', 'timeout', 'cancel')),
    constraint run_policy check (policy in ('abort', 'skip', 'continue', 'compensate')),
    constraint run_category check (category in (
        'transient', 'external', 'timeout', 'agent', 'unknown', 'validation', 'governance', 'auth', 'conflict',
        'poison')),
    constraint run_rollback check (rollback in ('none', 'complete', 'partial')),
    constraint finished_run_has_an_end check (
        (ended_at is not null) = (state in ('succeeded', 'failed', 'cancelled', 'rolled_back'))),
    constraint finished_run_is_at_rest check (
        state not in ('succeeded', 'failed', 'cancelled', 'rolled_back')
        or (due_at is null and open = 0 and moving = 0 and leased = 0 and undoing = 0)),
    constraint stopping_run_has_a_cause check (state not in ('stopping', 'compensating') or cause is not null),
    constraint leased_steps_are_moving check (leased <= moving)
) strict, without rowid;

create index runs_due on runs (due_at) where due_at is not null;

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
    constraint step_state check (state in (
        'pending', 'ready', 'running', 'validating', 'retrying', 'awaiting_approval', 'awaiting_event',
        'awaiting_completion', 'succeeded', 'failed', 'skipped', 'cancelled')),
    constraint step_category check (category in (
        'transient', 'external', 'timeout', 'agent', 'unknown', 'validation', 'governance', 'auth', 'conflict',
        'poison')),
    constraint ready_step_is_claimable check (state <> 'ready' or ready_at is not null),
    constraint claimable_step_may_be_claimed check (
        ready_at is null or (state in ('ready', 'validating') and worker is null and queue > 0)),
    constraint running_step_is_leased check (state <> 'running' or worker is not null),
    constraint validating_step_is_leased_or_claimable check (
        state <> 'validating' or (worker is null) = (ready_at is not null)),
    constraint lease_is_whole check (
        (worker is null and claimed_at is null)
        or (state in ('running', 'validating') and fence > 0 and worker is not null and claimed_at is not null
            and due_at is not null)),
    constraint timer_has_a_meaning check (
        due_at is null or worker is not null
        or state in ('retrying', 'awaiting_approval', 'awaiting_event', 'awaiting_completion')),
    constraint retrying_step_has_a_timer check (state <> 'retrying' or due_at is not null),
    constraint waiting_step_names_its_event check (state <> 'awaiting_event' or ifnull(note ->> 'event', '') <> ''),
    constraint waiting_step_has_a_token check (
        state <> 'awaiting_completion' or ifnull(note ->> 'token', '') <> ''),
    constraint settled_step_has_its_place check (
        (settled is not null) = (state in ('succeeded', 'failed', 'skipped', 'cancelled')))
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
    constraint attempt_state check (state in (
        'succeeded', 'failed', 'timed_out', 'lost', 'cancelled', 'waited', 'released')),
    constraint attempt_category check (category in (
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
when old.state in ('succeeded', 'failed', 'cancelled', 'rolled_back') or new.seq < old.seq
begin
    select raise(abort, 'a finished run never changes, and the journal of a run only grows');
end;

create trigger finished_step_never_changes before update on steps
when old.state in ('succeeded', 'failed', 'skipped', 'cancelled') or new.fence < old.fence
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
when old.state not in ('succeeded', 'failed', 'cancelled', 'rolled_back')
begin
    select raise(abort, 'only a finished run can be deleted');
end;

create trigger unfinished_run_keeps_its_steps before delete on steps
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id
             and state not in ('succeeded', 'failed', 'cancelled', 'rolled_back'))
begin
    select raise(abort, 'only the steps of a finished run can be deleted');
end;

create trigger unfinished_run_keeps_its_attempts before delete on attempts
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id
             and state not in ('succeeded', 'failed', 'cancelled', 'rolled_back'))
begin
    select raise(abort, 'only the attempts of a finished run can be deleted');
end;

create trigger unfinished_run_keeps_its_journal before delete on journal
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id
             and state not in ('succeeded', 'failed', 'cancelled', 'rolled_back'))
begin
    select raise(abort, 'only the journal of a finished run can be deleted');
end;

create trigger living_worker_keeps_its_journal before delete on worker_journal
when exists (select 1 from workers where tenant = old.tenant and id = old.worker_id and state <> 'shutdown')
begin
    select raise(abort, 'only the journal of a worker that was shut down can be deleted');
end;
