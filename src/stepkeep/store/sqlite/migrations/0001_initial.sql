-- The whole schema as of migration 42: tables with their indexes and triggers, then views.
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

-- A run keeps to the definition it was started with, so a published version is never changed and never deleted.
create trigger definition_never_changes before update on definitions
begin
    select raise(abort, 'a published definition never changes; publish a new version');
end;

create trigger definition_is_never_deleted before delete on definitions
begin
    select raise(abort, 'a published definition never changes; publish a new version');
end;

create table queues (
    id     integer primary key autoincrement,
    tenant text not null,
    spec   text not null,
    unique (tenant, spec)
) strict;

create table "runs" (
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
        when 'paused'       then ended_at is null
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

-- Finished is final.
create trigger finished_run_never_changes before update on runs
when old.ended_at is not null or new.seq < old.seq
begin
    select raise(abort, 'a finished run never changes, and the journal of a run only grows');
end;

-- A finished run may be deleted for good; an unfinished one loses nothing.
create trigger unfinished_run_stays before delete on runs
when old.ended_at is null
begin
    select raise(abort, 'only a finished run can be deleted');
end;

-- A run changes its state only with a journal entry, and leaves `idle` only by a start or a cancel.
--
-- One transaction may make several hops, so the row of a run that starts may go from idle to running at once. What no
-- hop explains is refused: a new state at the same sequence, or a run that runs and was never started.
create trigger run_starts_before_it_runs before update of state on runs
when new.state <> old.state and (
    new.seq = old.seq or (old.state = 'idle' and new.started_at is null and new.state <> 'cancelled'))
begin
    select raise(abort, 'a run changes its state with a journal entry, and leaves idle when it is started');
end;

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
    labels         blob, asked_before blob, policy_revision integer,
    primary key (tenant, run_id)
) strict;

create index run_details_workflow on run_details (tenant, workflow, run_id);
create index run_details_business_key on run_details (tenant, business_key, run_id) where business_key is not null;
create index run_details_correlation on run_details (tenant, correlation_id, run_id) where correlation_id <> run_id;
create index run_details_reruns on run_details (tenant, rerun_of, run_id) where rerun_of is not null;

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
        when 'awaiting_children'   then ready_at is null and worker is null and settled is null
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

-- The claimable steps of one run by number: within a run, workers claim the lowest first.
--
-- A step that is claimed by the transaction that made it ready never enters this index.
create index steps_ready on steps (tenant, run_id, no) where ready_at is not null;

-- The steps that are claimed together with their resources: their time is beyond every clock.
create index steps_await_resources on steps (queue, priority desc, ready_at, run_id, no)
    where ready_at >= 100000000000000000 and ready_at < 200000000000000000;

create index steps_claim on steps (queue, priority desc, ready_at, run_id, no) where ready_at is not null;
create index steps_due on steps (due_at) where due_at is not null;

create trigger finished_step_never_changes before update on steps
when old.settled is not null or new.fence < old.fence
begin
    select raise(abort, 'a finished step never changes, and its fence only grows');
end;

create trigger unfinished_run_keeps_its_steps before delete on steps
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the steps of a finished run can be deleted');
end;

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

-- What attempts cost is found by tenant and time.
create index attempts_cost on attempts (tenant, ended_at) where cost is not null;

create trigger attempt_never_changes before update on attempts
begin
    select raise(abort, 'an attempt is written once, when it ends');
end;

create trigger unfinished_run_keeps_its_attempts before delete on attempts
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the attempts of a finished run can be deleted');
end;

-- The place of an entry never changes and is never used again, for streams that follow all entries. VACUUM may give a rowid
-- without a column of its own anew.

create table journal (
    place  integer primary key autoincrement,
    tenant text not null,
    run_id text not null,
    seq    integer not null check (seq > 0),
    at     integer not null,
    body   blob not null,
    hash   blob not null check (length(hash) = 32),
    unique (tenant, run_id, seq)
) strict;

-- The record is only ever added to.
create trigger journal_never_changes before update on journal
begin
    select raise(abort, 'the journal is only ever added to');
end;

create trigger unfinished_run_keeps_its_journal before delete on journal
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the journal of a finished run can be deleted');
end;

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

create trigger consumed_message_never_changes before update on messages
when old.consumed_by is not null
begin
    select raise(abort, 'a consumed message never changes');
end;

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

create table "idempotency_keys" (
    tenant      text not null,
    operation   text not null,
    key         text not null,
    fingerprint text not null,
    run_id      text not null,
    scope       text not null default '',
    primary key (tenant, operation, key, scope)
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
    head         blob not null, owner text,
    unique (tenant, id),
    constraint worker_state check (state in ('initializing', 'idle', 'busy', 'unresponsive', 'draining', 'shutdown'))
) strict;

create index workers_living on workers (tenant, no) where state <> 'shutdown';

-- A worker keeps its owner: `executed:` of a gate finds the people behind attempts through the number of the worker.
create trigger worker_keeps_its_owner before update of owner on workers
when old.owner is not new.owner
begin
    select raise(abort, 'a worker keeps its owner: register another worker');
end;

create table worker_journal (
    tenant    text not null,
    worker_id text not null,
    seq       integer not null check (seq > 0),
    at        integer not null,
    body      blob not null,
    hash      blob not null check (length(hash) = 32),
    primary key (tenant, worker_id, seq)
) strict;

create trigger worker_journal_never_changes before update on worker_journal
begin
    select raise(abort, 'the journal of a worker is only ever added to');
end;

create trigger living_worker_keeps_its_journal before delete on worker_journal
when exists (select 1 from workers where tenant = old.tenant and id = old.worker_id and state <> 'shutdown')
begin
    select raise(abort, 'only the journal of a worker that was shut down can be deleted');
end;

-- Runs that an operator has set aside, and why. A table of its own, because an unreadable run cannot seal an entry of its
-- journal. Each row is one quarantine; its release is added to it, once, and nothing else ever changes.
create table quarantine (
    id             integer primary key autoincrement,
    tenant         text not null,
    run_id         text not null,
    quarantined_at integer not null,
    quarantined_by text not null,
    reason         text not null,
    released_at    integer,
    released_by    text,
    release_reason text,
    constraint release_is_whole check (
        (released_at is null) = (released_by is null) and (released_at is null) = (release_reason is null))
) strict;

create unique index quarantine_open on quarantine (tenant, run_id) where released_at is null;

create trigger quarantine_only_grows before update on quarantine
when old.released_at is not null or new.released_at is null or new.id <> old.id or new.tenant <> old.tenant
    or new.run_id <> old.run_id or new.quarantined_at <> old.quarantined_at
    or new.quarantined_by <> old.quarantined_by or new.reason <> old.reason
begin
    select raise(abort, 'a quarantine is only ever released, once');
end;

create trigger quarantine_is_never_deleted before delete on quarantine
begin
    select raise(abort, 'the record of a quarantine is kept');
end;

-- What diagnosis needs beside the record: what each worker serves, and the evidence of failed attempts. Neither is part
-- of the record. A worker overwrites its report with each heartbeat; evidence is deleted with its run.
create table worker_reports (
    tenant      text not null,
    worker      integer not null,
    reported_at integer not null,
    body        text not null check (json_valid(body)),
    primary key (tenant, worker)
) strict, without rowid;

create table attempt_evidence (
    tenant text not null,
    run_id text not null,
    no     integer not null,
    fence  integer not null,
    body   text not null check (json_valid(body)),
    primary key (tenant, run_id, no, fence)
) strict;

-- Large payloads, outside the rows that refer to them: the value in chunks, under its digest. A reference in `input` or
-- `output` has the digest and the size. Chunks are written with the row that refers to them and deleted with their run.
create table payload_chunks (
    tenant text not null,
    run_id text not null,
    digest text not null check (length(digest) = 64),
    no     integer not null check (no >= 0),
    body   blob not null,
    primary key (tenant, run_id, digest, no)
) strict;

-- People: tenants, principals, roles and groups with their dates, delegations, API keys, and the record of changes.
--
-- A row is added, and ended at most once. Every change has an entry in `people_journal`, added by one writer at a time.
create table tenants (
    name       text not null primary key,
    vouching   text not null,
    created_at integer not null,
    created_by text not null,
    constraint tenant_vouching check (vouching in ('allowed', 'refused'))
) strict, without rowid;

create table principals (
    tenant      text not null,
    name        text not null,
    kind        text not null,
    display     text not null,
    folded      text not null,
    created_at  integer not null,
    created_by  text not null,
    disabled_at integer,
    disabled_by text,
    primary key (tenant, name),
    unique (tenant, folded),
    constraint principal_kind check (kind in ('user', 'service')),
    constraint principal_end check ((disabled_at is null) = (disabled_by is null))
) strict, without rowid;

create table memberships (
    tenant       text not null,
    id           text not null,
    subject      text not null,
    subject_kind text not null,
    kind         text not null,
    name         text not null,
    granted_at   integer not null,
    granted_by   text not null,
    valid_from   integer,
    valid_to     integer,
    revoked_at   integer,
    revoked_by   text,
    primary key (tenant, id),
    constraint membership_subject_kind check (subject_kind in ('person', 'group')),
    constraint membership_kind check (kind in ('role', 'group')),
    constraint membership_depth check (subject_kind = 'person' or kind = 'role'),
    constraint membership_end check ((revoked_at is null) = (revoked_by is null))
) strict, without rowid;

create index memberships_subject on memberships (tenant, subject_kind, subject);
create index memberships_name on memberships (tenant, kind, name);

-- Ended is final, and what was granted stays as it was granted.
create trigger ended_membership_never_changes before update on memberships
when old.revoked_at is not null
    or (old.subject, old.subject_kind, old.kind, old.name, old.granted_at, old.granted_by)
        <> (new.subject, new.subject_kind, new.kind, new.name, new.granted_at, new.granted_by)
    or old.valid_from is not new.valid_from or old.valid_to is not new.valid_to
begin
    select raise(abort, 'a membership is only ever added, and revoked once');
end;

create trigger membership_stays before delete on memberships
begin
    select raise(abort, 'a membership is revoked, never deleted');
end;

create table delegations (
    tenant     text not null,
    id         text not null,
    delegator  text not null,
    delegate   text not null,
    granted_at integer not null,
    granted_by text not null,
    reason     text not null,
    valid_from integer,
    valid_to   integer,
    revoked_at integer,
    revoked_by text,
    primary key (tenant, id),
    constraint delegation_to_another check (delegator <> delegate),
    constraint delegation_end check ((revoked_at is null) = (revoked_by is null))
) strict, without rowid;

create index delegations_delegate on delegations (tenant, delegate);

create trigger ended_delegation_never_changes before update on delegations
when old.revoked_at is not null
    or (old.delegator, old.delegate, old.granted_at, old.granted_by, old.reason)
        <> (new.delegator, new.delegate, new.granted_at, new.granted_by, new.reason)
    or old.valid_from is not new.valid_from or old.valid_to is not new.valid_to
begin
    select raise(abort, 'a delegation is only ever added, and revoked once');
end;

create trigger delegation_stays before delete on delegations
begin
    select raise(abort, 'a delegation is revoked, never deleted');
end;

create table api_keys (
    tenant      text not null,
    id          text not null unique,
    owner       text not null,
    secret_hash text not null check (length(secret_hash) = 64),
    scopes      text not null check (json_valid(scopes)),
    created_at  integer not null,
    created_by  text not null,
    expires_at  integer,
    revoked_at  integer,
    revoked_by  text,
    replaces    text, max_concurrent_runs integer, max_requests_per_min integer, queues text check (json_valid(queues)), handlers text check (json_valid(handlers)), lineage text,
    primary key (tenant, id),
    constraint key_end check ((revoked_at is null) = (revoked_by is null))
) strict, without rowid;

create trigger revoked_key_never_changes before update on api_keys
when old.revoked_at is not null
    or (old.owner, old.secret_hash, old.scopes, old.created_at, old.created_by)
        <> (new.owner, new.secret_hash, new.scopes, new.created_at, new.created_by)
    or (old.expires_at is not null and (new.expires_at is null or new.expires_at > old.expires_at))
begin
    select raise(abort, 'a key keeps its owner, secret and scopes, never gets a later end, and is revoked once');
end;

create trigger key_keeps_its_quotas before update on api_keys
when old.max_concurrent_runs is not new.max_concurrent_runs
    or old.max_requests_per_min is not new.max_requests_per_min
begin
    select raise(abort, 'a key keeps its quotas: rotate it, or make another one');
end;

create trigger key_keeps_its_limits before update on api_keys
when old.queues is not new.queues or old.handlers is not new.handlers
begin
    select raise(abort, 'a key keeps the queues and handlers that it is limited to: make another one');
end;

create table people_journal (
    tenant  text not null,
    seq     integer not null check (seq > 0),
    at      integer not null,
    subject text not null,
    body    blob not null,
    hash    blob not null check (length(hash) = 32),
    primary key (tenant, seq)
) strict;

create index people_journal_subject on people_journal (tenant, subject, seq);
create index people_journal_time on people_journal (tenant, at, seq);

create trigger people_journal_never_changes before update on people_journal
begin
    select raise(abort, 'the journal of people is only ever added to');
end;

create trigger people_journal_stays before delete on people_journal
begin
    select raise(abort, 'the journal of people is never deleted');
end;

-- The registry of JSON Schemas that definitions refer to. A published schema never changes.
create table schemas (
    tenant       text not null,
    ref          text not null,
    digest       text not null check (length(digest) = 64),
    document     blob not null,
    published_at integer not null,
    published_by text not null,
    primary key (tenant, ref)
) strict;

create trigger schema_never_changes before update on schemas
begin
    select raise(abort, 'a published schema never changes; publish it under another reference');
end;

create trigger schema_is_never_deleted before delete on schemas
begin
    select raise(abort, 'a published schema never changes; publish it under another reference');
end;

-- Gates: one row for each opening, with what people were shown and how it ended; and one row for each decision.
--
-- They are the record, and what lists are made of. The kernel decides from the row of the step.
create table gates (
    tenant       text not null,
    run_id       text not null,
    no           integer not null check (no >= 0),
    activation   integer not null check (activation >= 0),
    opened_at    integer not null,
    level        integer not null check (level >= 0),
    due_at       integer,
    shown        blob not null,
    shown_digest text not null check (length(shown_digest) = 64),
    closed_at    integer,
    outcome      text,
    primary key (tenant, run_id, no, activation),
    constraint gate_end check ((closed_at is null) = (outcome is null))
) strict;

create index gates_open on gates (tenant, run_id, no) where closed_at is null;

create trigger closed_gate_never_changes before update on gates
when old.closed_at is not null or old.opened_at <> new.opened_at or old.shown <> new.shown
    or old.shown_digest <> new.shown_digest or new.level < old.level
begin
    select raise(abort, 'a gate keeps what it showed, and is closed once');
end;

create trigger unfinished_run_keeps_its_gates before delete on gates
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the gates of a finished run can be deleted');
end;

create table decisions (
    tenant        text not null,
    run_id        text not null,
    no            integer not null check (no >= 0),
    activation    integer not null check (activation >= 0),
    person        text not null,
    on_behalf_of  text,
    level         integer not null check (level >= 0),
    decision      text not null check (decision in ('approved', 'rejected')),
    at            integer not null,
    comment       text not null,
    evidence      blob,
    key_id        text,
    delegation_id text,
    held_roles    text not null check (json_valid(held_roles)),
    vouched_by    text,
    shown_digest  text,
    primary key (tenant, run_id, no, activation, person),
    constraint decision_for_another check (on_behalf_of is null or on_behalf_of <> person)
) strict;

create trigger decision_never_changes before update on decisions
begin
    select raise(abort, 'a decision never changes');
end;

create trigger unfinished_run_keeps_its_decisions before delete on decisions
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the decisions of a finished run can be deleted');
end;

-- The live policies of tenants, in numbered revisions. The newest one counts.
create table policies (
    tenant       text not null,
    revision     integer not null check (revision > 0),
    name         text not null,
    digest       text not null,
    document     blob not null,
    published_at integer not null,
    published_by text not null,
    primary key (tenant, revision)
) strict;

create trigger policy_never_changes before update on policies
begin
    select raise(abort, 'a policy is only ever added: publish another revision');
end;

create trigger policy_stays before delete on policies
begin
    select raise(abort, 'a policy is never deleted: verdicts on record refer to it');
end;

-- Settings of tenants in numbered revisions: allow lists, inbound webhooks. The newest revision of a name counts.
create table settings (
    tenant   text not null,
    kind     text not null,
    name     text not null,
    revision integer not null check (revision > 0),
    document blob not null,
    saved_at integer not null,
    saved_by text not null,
    primary key (tenant, kind, name, revision)
) strict;

create trigger setting_never_changes before update on settings
begin
    select raise(abort, 'a setting is only ever added: save another revision');
end;

create trigger setting_stays before delete on settings
begin
    select raise(abort, 'a setting is never deleted: its revisions are the record of its changes');
end;

-- Messages that were sent by business key: those kept for a run that does not exist yet, and the ids of delivered ones.
create table mailbox (
    tenant     text not null,
    key        text not null,
    id         text not null,
    number     integer not null check (number >= 0),
    name       text not null,
    payload    blob,
    sender     text not null,
    vouched_by text,
    key_id     text,
    arrived_at integer not null,
    expires_at integer not null,
    forget_at  integer not null,
    run_id     text,
    primary key (tenant, key, id),
    check (run_id is null or payload is null),
    check (forget_at >= expires_at)
) strict, without rowid;

create index mailbox_kept on mailbox (tenant, key, number, id) where payload is not null;
create index mailbox_forget on mailbox (forget_at);

create trigger delivered_message_stays_delivered before update on mailbox
when old.run_id is not null and old.forget_at > new.arrived_at
begin
    select raise(abort, 'a delivered message never changes');
end;

-- Triggers: what starts runs by itself, what became of each firing, and backfills.
--
-- A firing and the run that it starts are written in one transaction, under a new sequence number of the trigger's row.
-- `due_at` of a trigger is its only timer. A moment fires once: its row never gets another run.
create table triggers (
    tenant text not null,
    name text not null,
    seq integer not null check (seq > 0),
    workflow text not null,
    version integer,
    kind text not null check (kind in ('schedule', 'event', 'ended')),
    topic text,
    spec blob not null,
    next_at integer,
    due_at integer,
    cursor_at integer,
    paused_at integer,
    paused_by text,
    created_at integer not null,
    created_by text not null,
    removed_at integer,
    primary key (tenant, name)
) strict;

-- Ends of runs are noted for triggers by the transaction that ends a run; old firings are deleted by retention.
create index triggers_ended on triggers (tenant, topic, name) where kind = 'ended' and removed_at is null;

create index triggers_due on triggers (due_at) where due_at is not null;
create index triggers_workflow on triggers (tenant, workflow, name);
create index triggers_kind on triggers (tenant, kind, name);

create trigger trigger_goes_on before update on triggers
when new.seq <= old.seq
begin
    select raise(abort, 'each change of a trigger has a new sequence number');
end;

create table firings (
    tenant text not null,
    trigger_name text not null,
    moment text not null,
    due_at integer not null,
    state text not null check (state in ('awaiting', 'waiting', 'started', 'skipped', 'refused')),
    watched integer not null check (watched in (0, 1)),
    made_at integer not null,
    depth integer not null check (depth >= 0),
    run_id text,
    source text,
    backfill text,
    reason text,
    given blob,
    primary key (tenant, trigger_name, moment),
    constraint started_firing_has_a_run check ((state = 'started') = (run_id is not null))
) strict;

create index firings_due on firings (tenant, trigger_name, due_at, moment);
create index firings_watched on firings (tenant, trigger_name, due_at) where watched = 1;
create index firings_run on firings (tenant, run_id) where run_id is not null;
create index firings_awaiting on firings (tenant, source) where state = 'awaiting';
create index firings_made on firings (tenant, made_at) where watched = 0;

create trigger fired_moment_never_changes before update on firings
when old.run_id is not null and old.run_id is not new.run_id
begin
    select raise(abort, 'a moment fires once: its run never changes');
end;

create table backfills (
    tenant text not null,
    id text not null,
    trigger_name text not null,
    state text not null check (state in ('running', 'done', 'stopped')),
    since_at integer not null,
    until_at integer not null,
    cursor_at integer not null,
    at_once integer not null check (at_once > 0),
    started integer not null,
    skipped integer not null,
    refused integer not null,
    created_at integer not null,
    created_by text not null,
    ended_at integer,
    primary key (tenant, id)
) strict;

create index backfills_trigger on backfills (tenant, trigger_name, created_at, id);

-- Sinks, the delivery cursors of runs, and what people did to them.
create table "sinks" (
    tenant text not null,
    name text not null,
    kind text not null,
    takes integer not null check (takes between 1 and 31),
    prefix text not null,
    patterns text not null,
    options blob not null,
    created_at integer not null,
    created_by text not null,
    primary key (tenant, name)
) strict, without rowid;

create table deliveries (
    tenant      text not null,
    run_id      text not null,
    sink        text not null,
    takes       integer not null check (takes between 1 and 15),
    last        integer not null,
    sent        integer not null,
    sent_number integer not null,
    attempts    integer not null default 0,
    fence       integer not null default 0,
    ready_at    integer,
    lease_until integer,
    holder      text,
    dead_at     integer,
    error       text,
    target      blob,
    primary key (tenant, run_id, sink),
    check (min(last, sent, sent_number, attempts, fence) >= 0),
    check (dead_at is null or (ready_at is null and lease_until is null)),
    check (lease_until is null or ready_at is not null),
    check (last <= sent or ready_at is not null or dead_at is not null)
) strict;

create index deliveries_ready on deliveries (tenant, sink, ready_at) where ready_at is not null;
create index deliveries_open on deliveries (tenant, sink, run_id) where ready_at is not null or dead_at is not null;
create index deliveries_dead on deliveries (tenant, sink, run_id) where dead_at is not null;
create index deliveries_course on deliveries (takes) where takes > 1;

create trigger delivery_fence_only_grows before update of fence on deliveries when new.fence < old.fence
begin
    select raise(abort, 'the fence of a delivery only grows');
end;

create trigger delivery_is_not_taken_back before update of sent, sent_number on deliveries
when new.sent < old.sent or (new.sent = old.sent and new.sent_number < old.sent_number)
begin
    select raise(abort, 'what was delivered stays delivered');
end;

create table delivery_actions (
    id      integer primary key,
    tenant  text not null,
    at      integer not null,
    actor   text not null,
    action  text not null,
    sink    text not null,
    run_id  text,
    seq     integer,
    number  integer,
    reason  text not null
) strict;

create index delivery_actions_run on delivery_actions (tenant, run_id, id) where run_id is not null;
create index delivery_actions_tenant on delivery_actions (tenant, id);

create trigger delivery_action_never_changes before update on delivery_actions
begin
    select raise(abort, 'what people did to deliveries stays on record');
end;

create trigger delivery_action_stays before delete on delivery_actions
begin
    select raise(abort, 'what people did to deliveries stays on record');
end;

-- Signatures over the ends of the journals of finished runs, made after the end by a process that has the key.
create table signed_heads (
    tenant     text not null,
    run_id     text not null,
    key_id     text not null,
    entries    integer not null,
    head       blob not null,
    public_key text not null,
    signature  text not null,
    signed_at  integer not null,
    primary key (tenant, run_id, key_id)
) strict, without rowid;

create trigger signed_head_never_changes before update on signed_heads
begin
    select raise(abort, 'a signature is only ever added');
end;

-- Sessions of browsers: a key opened in a cookie. Of the cookie only a hash is kept.
create table sessions (
    tenant      text not null,
    id          text not null unique,
    owner       text not null,
    key         text not null,
    secret_hash text not null check (length(secret_hash) = 64),
    created_at  integer not null,
    expires_at  integer not null,
    ended_at    integer,
    primary key (tenant, id)
) strict, without rowid;

create index sessions_key on sessions (tenant, key, id) where ended_at is null;

create trigger ended_session_never_changes before update on sessions
when old.ended_at is not null
    or (old.owner, old.key, old.secret_hash, old.created_at, old.expires_at)
        <> (new.owner, new.key, new.secret_hash, new.created_at, new.expires_at)
begin
    select raise(abort, 'a session keeps its key and its limit, and ends once');
end;

-- The audit log: what was asked for with keys and through the service, and what was refused.
create table audit (
    tenant     text not null,
    id         text not null,
    at         integer not null,
    actor      text not null,
    key        text,
    vouched_by text,
    operation  text not null,
    target     text not null,
    outcome    text not null check (outcome in ('done', 'refused', 'failed')),
    code       text,
    request_id text,
    address    text, seq integer check (seq > 0), hash text check ((hash is null) = (seq is null)),
    primary key (tenant, at, id)
) strict, without rowid;

create index audit_actor on audit (tenant, actor, at, id);
create index audit_target on audit (tenant, target, at, id);
create unique index audit_chain on audit (tenant, seq) where seq is not null;
create index audit_unchained on audit (tenant, at) where seq is null;

create trigger audit_never_changes before update on audit
begin
    select raise(abort, 'the audit log is only ever added to');
end;

create table quota_scopes (
    tenant text not null,
    scope  text not null,
    primary key (tenant, scope)
) strict, without rowid;

create table quota_runs (
    tenant   text not null,
    scope    text not null,
    run_id   text not null,
    taken_at integer not null,
    primary key (tenant, scope, run_id)
) strict, without rowid;

-- Jobs that act on many runs, and what became of each run.
create table "jobs" (
    tenant text not null,
    id text not null,
    action text not null check (action in ('cancel', 'rerun', 'pause', 'resume', 'migrate')),
    state text not null check (state in ('running', 'done', 'stopped')),
    options blob not null,
    created_at integer not null,
    created_by text not null,
    vouched_by text,
    api_key text,
    idempotency_key text,
    digest blob not null,
    seq integer not null check (seq >= 0),
    lease_until integer not null,
    holder text,
    ended_at integer, scope text not null default '',
    primary key (tenant, id),
    constraint ended_job_has_a_time check ((state = 'running') = (ended_at is null))
) strict;

create unique index jobs_key on jobs (tenant, idempotency_key, scope) where idempotency_key is not null;
create index jobs_due on jobs (lease_until) where state = 'running';

create table job_runs (
    tenant text not null,
    job_id text not null,
    run_id text not null,
    state text not null check (state in ('waiting', 'done', 'unchanged', 'refused')),
    detail text,
    new_run_id text,
    primary key (tenant, job_id, run_id)
) strict, without rowid;

create index job_runs_waiting on job_runs (tenant, job_id, run_id) where state = 'waiting';

-- Adoptions: which run took the result of which step of an earlier run, and which of them undoes it.
--
-- A run that a live run adopted from is kept by retention. At most one run owns the undo of a step.
create table adoptions (
    tenant      text not null,
    run_id      text not null,
    no          integer not null check (no >= 0),
    source_run  text not null,
    source_step text not null,
    owned       integer not null check (owned in (0, 1)),
    primary key (tenant, run_id, no),
    constraint adoption_of_another check (run_id <> source_run)
) strict, without rowid;

create unique index adoptions_one_owner on adoptions (tenant, source_run, source_step) where owned = 1;
create index adoptions_by_source on adoptions (tenant, source_run);

create trigger adoption_keeps_its_source before update on adoptions
when old.source_run <> new.source_run or old.source_step <> new.source_step or new.owned > old.owned
begin
    select raise(abort, 'an adoption keeps its source, and gives the undo away once');
end;

create trigger unfinished_run_keeps_its_adoptions before delete on adoptions
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the adoptions of a finished run can be deleted');
end;

-- Child runs: which step asked for which run, how far that is, and what is left to do about it.
--
-- A parent asks for a child, or calls it back, in the transaction of its own decision. A child starts in the transaction
-- that finds its row still requested. Its end is written here in its own transaction, and told to the parent later.
create table children (
    tenant text not null,
    run_id text not null,
    no integer not null check (no >= 0),
    activation integer not null check (activation > 0),
    child_id text not null,
    workflow text not null,
    version integer not null check (version > 0),
    mode text not null,
    state text not null,
    requested_at integer not null,
    started_at integer,
    recall text,
    recalled_at integer,
    ended_at integer,
    outcome text,
    category text,
    error text,
    todo text,
    todo_at integer, undoes text,
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
) strict;

create unique index children_child on children (tenant, child_id);
create index children_todo on children (todo_at) where todo is not null;

create trigger unfinished_run_keeps_its_children before delete on children
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the links to children of a finished run can be deleted');
end;

-- Execution slots: runs under a limit on running runs, waiting or granted. A slot is held until its run has ended.
create table slots (
    tenant text not null,
    run_id text not null,
    workflow text not null,
    most integer check (most is null or most > 0),
    priority integer not null,
    asked_at integer not null,
    granted_at integer,
    primary key (tenant, run_id)
) strict;

create index slots_waiting on slots (tenant, workflow, priority desc, asked_at, run_id) where granted_at is null;
create index slots_granted on slots (tenant, workflow, run_id) where granted_at is not null;

create trigger slot_is_granted_once before update on slots
when old.granted_at is not null or new.granted_at is null
begin
    select raise(abort, 'a slot is granted to a run once');
end;

create trigger unfinished_run_keeps_its_slot before delete on slots
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the slot of a finished run can be deleted');
end;

-- Resources that steps hold while a worker holds them: exclusive, shared, or units of a pool.
create table resource_holds (
    tenant text not null,
    run_id text not null,
    no integer not null,
    fence integer not null check (fence > 0),
    resource text not null,
    step text not null,
    mode text not null check (mode in ('exclusive', 'shared', 'units')),
    units integer not null check ((units > 0) = (mode = 'units') and units >= 0),
    held_at integer not null,
    primary key (tenant, resource, run_id, no)
) strict;

create unique index resource_is_exclusive on resource_holds (tenant, resource) where mode = 'exclusive';
create index resource_holds_of_run on resource_holds (tenant, run_id);

create table audit_heads (
    tenant    text not null primary key,
    seq       integer not null,
    hash      text not null check (length(hash) = 64),
    forgotten integer not null,
    anchor    text not null,
    constraint audit_head_order check (seq >= forgotten)
) strict, without rowid;

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
