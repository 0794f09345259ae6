-- index adoptions_by_source
CREATE INDEX adoptions_by_source on adoptions (tenant, source_run)

-- index adoptions_one_owner
CREATE UNIQUE INDEX adoptions_one_owner on adoptions (tenant, source_run, source_step) where owned = 1

-- index attempts_cost
CREATE INDEX attempts_cost on attempts (tenant, ended_at) where cost is not null

-- index audit_actor
CREATE INDEX audit_actor on audit (tenant, actor, at, id)

-- index audit_chain
CREATE UNIQUE INDEX audit_chain on audit (tenant, seq) where seq is not null

-- index audit_target
CREATE INDEX audit_target on audit (tenant, target, at, id)

-- index audit_unchained
CREATE INDEX audit_unchained on audit (tenant, at) where seq is null

-- index backfills_trigger
CREATE INDEX backfills_trigger on backfills (tenant, trigger_name, created_at, id)

-- index checkpoints_in_order
CREATE UNIQUE INDEX checkpoints_in_order on checkpoints (tenant, run_id, no, seq, name)

-- index children_child
CREATE UNIQUE INDEX children_child on children (tenant, child_id)

-- index children_todo
CREATE INDEX children_todo on children (todo_at) where todo is not null

-- index conversations_by_age
CREATE INDEX conversations_by_age on conversations (tenant, changed_at, name)

-- index delegations_delegate
CREATE INDEX delegations_delegate on delegations (tenant, delegate)

-- index deliveries_course
CREATE INDEX deliveries_course on deliveries (takes) where takes > 1

-- index deliveries_dead
CREATE INDEX deliveries_dead on deliveries (tenant, sink, run_id) where dead_at is not null

-- index deliveries_open
CREATE INDEX deliveries_open on deliveries (tenant, sink, run_id) where ready_at is not null or dead_at is not null

-- index deliveries_ready
CREATE INDEX deliveries_ready on deliveries (tenant, sink, ready_at) where ready_at is not null

-- index delivery_actions_run
CREATE INDEX delivery_actions_run on delivery_actions (tenant, run_id, id) where run_id is not null

-- index delivery_actions_tenant
CREATE INDEX delivery_actions_tenant on delivery_actions (tenant, id)

-- index firings_awaiting
CREATE INDEX firings_awaiting on firings (tenant, source) where state = 'awaiting'

-- index firings_due
CREATE INDEX firings_due on firings (tenant, trigger_name, due_at, moment)

-- index firings_made
CREATE INDEX firings_made on firings (tenant, made_at) where watched = 0

-- index firings_run
CREATE INDEX firings_run on firings (tenant, run_id) where run_id is not null

-- index firings_watched
CREATE INDEX firings_watched on firings (tenant, trigger_name, due_at) where watched = 1

-- index gates_open
CREATE INDEX gates_open on gates (tenant, run_id, no) where closed_at is null

-- index idempotency_keys_run
CREATE INDEX idempotency_keys_run on idempotency_keys (tenant, run_id)

-- index job_runs_waiting
CREATE INDEX job_runs_waiting on job_runs (tenant, job_id, run_id) where state = 'waiting'

-- index jobs_due
CREATE INDEX jobs_due on jobs (lease_until) where state = 'running'

-- index jobs_key
CREATE UNIQUE INDEX jobs_key on jobs (tenant, idempotency_key, scope) where idempotency_key is not null

-- index limit_holds_of_key
CREATE UNIQUE INDEX limit_holds_of_key on limit_holds (tenant, name, key, seq)

-- index limit_lines_due
CREATE INDEX limit_lines_due on limit_lines (queue, due_at) where due_at is not null

-- index limit_waits_of_line
CREATE INDEX limit_waits_of_line on limit_waits (tenant, name, key, queue, priority desc, asked_at, run_id, no)

-- index mailbox_forget
CREATE INDEX mailbox_forget on mailbox (forget_at)

-- index mailbox_kept
CREATE INDEX mailbox_kept on mailbox (tenant, key, number, id) where payload is not null

-- index memberships_name
CREATE INDEX memberships_name on memberships (tenant, kind, name)

-- index memberships_subject
CREATE INDEX memberships_subject on memberships (tenant, subject_kind, subject)

-- index people_journal_subject
CREATE INDEX people_journal_subject on people_journal (tenant, subject, seq)

-- index people_journal_time
CREATE INDEX people_journal_time on people_journal (tenant, at, seq)

-- index quarantine_open
CREATE UNIQUE INDEX quarantine_open on quarantine (tenant, run_id) where released_at is null

-- index resource_holds_of_run
CREATE INDEX resource_holds_of_run on resource_holds (tenant, run_id)

-- index resource_is_exclusive
CREATE UNIQUE INDEX resource_is_exclusive on resource_holds (tenant, resource) where mode = 'exclusive'

-- index run_details_business_key
CREATE INDEX run_details_business_key on run_details (tenant, business_key, run_id) where business_key is not null

-- index run_details_correlation
CREATE INDEX run_details_correlation on run_details (tenant, correlation_id, run_id) where correlation_id <> run_id

-- index run_details_reruns
CREATE INDEX run_details_reruns on run_details (tenant, rerun_of, run_id) where rerun_of is not null

-- index run_details_workflow
CREATE INDEX run_details_workflow on run_details (tenant, workflow, run_id)

-- index runs_due
CREATE INDEX runs_due on runs (due_at) where due_at is not null

-- index runs_live
CREATE INDEX runs_live on runs (tenant, id) where ended_at is null

-- index runs_troubled
CREATE INDEX runs_troubled on runs (tenant, id) where cause is not null

-- index sessions_key
CREATE INDEX sessions_key on sessions (tenant, key, id) where ended_at is null

-- index slots_granted
CREATE INDEX slots_granted on slots (tenant, workflow, run_id) where granted_at is not null

-- index slots_waiting
CREATE INDEX slots_waiting on slots (tenant, workflow, priority desc, asked_at, run_id) where granted_at is null

-- index steps_await_resources
CREATE INDEX steps_await_resources on steps (queue, priority desc, ready_at, run_id, no)
    where ready_at >= 100000000000000000 and ready_at < 200000000000000000

-- index steps_claim
CREATE INDEX steps_claim on steps (queue, priority desc, ready_at, run_id, no) where ready_at < 100000000000000000

-- index steps_due
CREATE INDEX steps_due on steps (due_at) where due_at is not null

-- index steps_hold
CREATE INDEX steps_hold on steps (tenant, run_id, no) where state = 'awaiting_approval' and fence > 0

-- index steps_ready
CREATE INDEX steps_ready on steps (tenant, run_id, no) where ready_at is not null

-- index stream_rows_place
CREATE UNIQUE INDEX stream_rows_place on stream_rows (tenant, run_id, no, name, fence, start)

-- index triggers_due
CREATE INDEX triggers_due on triggers (due_at) where due_at is not null

-- index triggers_ended
CREATE INDEX triggers_ended on triggers (tenant, topic, name) where kind = 'ended' and removed_at is null

-- index triggers_kind
CREATE INDEX triggers_kind on triggers (tenant, kind, name)

-- index triggers_workflow
CREATE INDEX triggers_workflow on triggers (tenant, workflow, name)

-- index workers_living
CREATE INDEX workers_living on workers (tenant, no) where state <> 'shutdown'

-- table adoptions
CREATE TABLE adoptions (
    tenant      text not null,
    run_id      text not null,
    no          integer not null check (no >= 0),
    source_run  text not null,
    source_step text not null,
    owned       integer not null check (owned in (0, 1)),
    primary key (tenant, run_id, no),
    constraint adoption_of_another check (run_id <> source_run)
) strict, without rowid

-- table api_keys
CREATE TABLE api_keys (
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
) strict, without rowid

-- table attempt_evidence
CREATE TABLE attempt_evidence (
    tenant text not null,
    run_id text not null,
    no     integer not null,
    fence  integer not null,
    body   text not null check (json_valid(body)),
    primary key (tenant, run_id, no, fence)
) strict

-- table attempts
CREATE TABLE attempts (
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
) strict

-- table audit
CREATE TABLE audit (
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
) strict, without rowid

-- table audit_heads
CREATE TABLE audit_heads (
    tenant    text not null primary key,
    seq       integer not null,
    hash      text not null check (length(hash) = 64),
    forgotten integer not null,
    anchor    text not null,
    constraint audit_head_order check (seq >= forgotten)
) strict, without rowid

-- table backfills
CREATE TABLE backfills (
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
) strict

-- table business_keys
CREATE TABLE business_keys (
    tenant text not null,
    key    text not null,
    run_id text not null,
    primary key (tenant, key)
) strict, without rowid

-- table checkpoints
CREATE TABLE checkpoints (
    tenant text not null,
    run_id text not null,
    no integer not null check (no >= 0),
    name text not null,
    fence integer not null check (fence > 0),
    seq integer not null,
    at integer not null,
    value blob not null,
    primary key (tenant, run_id, no, name)
) strict

-- table children
CREATE TABLE children (
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
) strict

-- table conversation_items
CREATE TABLE conversation_items (
    tenant text not null,
    conversation text not null,
    key text not null,
    ordinal integer not null check (ordinal >= 0),
    at integer not null,
    value blob not null,
    primary key (tenant, conversation, key, ordinal)
) strict

-- table conversations
CREATE TABLE conversations (
    tenant text not null,
    name text not null,
    items integer not null check (items >= 0),
    size_bytes integer not null check (size_bytes >= 0),
    changed_at integer not null,
    primary key (tenant, name)
) strict

-- table decisions
CREATE TABLE decisions (
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
) strict

-- table definitions
CREATE TABLE definitions (
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
) strict

-- table delegations
CREATE TABLE delegations (
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
) strict, without rowid

-- table deliveries
CREATE TABLE deliveries (
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
) strict

-- table delivery_actions
CREATE TABLE delivery_actions (
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
) strict

-- table firings
CREATE TABLE firings (
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
) strict

-- table gates
CREATE TABLE gates (
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
) strict

-- table idempotency_keys
CREATE TABLE "idempotency_keys" (
    tenant      text not null,
    operation   text not null,
    key         text not null,
    fingerprint text not null,
    run_id      text not null,
    scope       text not null default '',
    primary key (tenant, operation, key, scope)
) strict, without rowid

-- table job_runs
CREATE TABLE job_runs (
    tenant text not null,
    job_id text not null,
    run_id text not null,
    state text not null check (state in ('waiting', 'done', 'unchanged', 'refused')),
    detail text,
    new_run_id text,
    primary key (tenant, job_id, run_id)
) strict, without rowid

-- table jobs
CREATE TABLE "jobs" (
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
) strict

-- table journal
CREATE TABLE journal (
    place  integer primary key autoincrement,
    tenant text not null,
    run_id text not null,
    seq    integer not null check (seq > 0),
    at     integer not null,
    body   blob not null,
    hash   blob not null check (length(hash) = 32),
    unique (tenant, run_id, seq)
) strict

-- table limit_holds
CREATE TABLE limit_holds (
    tenant text not null,
    run_id text not null,
    no integer not null,
    fence integer not null check (fence > 0),
    name text not null,
    key text not null,
    seq integer not null,
    weight integer not null check (weight > 0),
    step text not null,
    held_at integer not null,
    primary key (tenant, run_id, no, name)
) strict

-- table limit_keys
CREATE TABLE limit_keys (
    tenant text not null,
    name text not null,
    key text not null,
    seq integer not null,
    held integer not null check (held >= 0),
    tat integer not null,
    freed text not null,
    used_at integer not null,
    primary key (tenant, name, key)
) strict, without rowid

-- table limit_lines
CREATE TABLE limit_lines (
    tenant text not null,
    name text not null,
    key text not null,
    queue integer not null,
    due_at integer,
    primary key (tenant, name, key, queue)
) strict

-- table limit_waits
CREATE TABLE limit_waits (
    tenant text not null,
    run_id text not null,
    no integer not null,
    name text not null,
    key text not null,
    queue integer not null,
    priority integer not null,
    asked_at integer not null,
    primary key (tenant, run_id, no)
) strict

-- table mailbox
CREATE TABLE mailbox (
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
) strict, without rowid

-- table memberships
CREATE TABLE memberships (
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
) strict, without rowid

-- table messages
CREATE TABLE messages (
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
) strict, without rowid

-- table migrations
CREATE TABLE migrations (
    version    integer primary key,
    name       text not null,
    checksum   text not null,
    applied_at integer not null
) strict

-- table outbox
CREATE TABLE outbox (
    tenant     text not null,
    run_id     text not null,
    seq        integer not null,
    number     integer not null,
    name       text not null,
    payload    blob not null,
    created_at integer not null,
    primary key (tenant, run_id, seq, number)
) strict, without rowid

-- table payload_chunks
CREATE TABLE payload_chunks (
    tenant text not null,
    run_id text not null,
    digest text not null check (length(digest) = 64),
    no     integer not null check (no >= 0),
    body   blob not null,
    primary key (tenant, run_id, digest, no)
) strict

-- table people_journal
CREATE TABLE people_journal (
    tenant  text not null,
    seq     integer not null check (seq > 0),
    at      integer not null,
    subject text not null,
    body    blob not null,
    hash    blob not null check (length(hash) = 32),
    primary key (tenant, seq)
) strict

-- table policies
CREATE TABLE policies (
    tenant       text not null,
    revision     integer not null check (revision > 0),
    name         text not null,
    digest       text not null,
    document     blob not null,
    published_at integer not null,
    published_by text not null,
    primary key (tenant, revision)
) strict

-- table principals
CREATE TABLE principals (
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
) strict, without rowid

-- table quarantine
CREATE TABLE quarantine (
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
) strict

-- table queues
CREATE TABLE queues (
    id     integer primary key autoincrement,
    tenant text not null,
    spec   text not null,
    unique (tenant, spec)
) strict

-- table quota_runs
CREATE TABLE quota_runs (
    tenant   text not null,
    scope    text not null,
    run_id   text not null,
    taken_at integer not null,
    primary key (tenant, scope, run_id)
) strict, without rowid

-- table quota_scopes
CREATE TABLE quota_scopes (
    tenant text not null,
    scope  text not null,
    primary key (tenant, scope)
) strict, without rowid

-- table resource_holds
CREATE TABLE resource_holds (
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
) strict

-- table run_details
CREATE TABLE run_details (
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
) strict

-- table runs
CREATE TABLE "runs" (
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
) strict, without rowid

-- table schemas
CREATE TABLE schemas (
    tenant       text not null,
    ref          text not null,
    digest       text not null check (length(digest) = 64),
    document     blob not null,
    published_at integer not null,
    published_by text not null,
    primary key (tenant, ref)
) strict

-- table sessions
CREATE TABLE sessions (
    tenant      text not null,
    id          text not null unique,
    owner       text not null,
    key         text not null,
    secret_hash text not null check (length(secret_hash) = 64),
    created_at  integer not null,
    expires_at  integer not null,
    ended_at    integer,
    primary key (tenant, id)
) strict, without rowid

-- table settings
CREATE TABLE settings (
    tenant   text not null,
    kind     text not null,
    name     text not null,
    revision integer not null check (revision > 0),
    document blob not null,
    saved_at integer not null,
    saved_by text not null,
    primary key (tenant, kind, name, revision)
) strict

-- table signed_heads
CREATE TABLE signed_heads (
    tenant     text not null,
    run_id     text not null,
    key_id     text not null,
    entries    integer not null,
    head       blob not null,
    public_key text not null,
    signature  text not null,
    signed_at  integer not null,
    primary key (tenant, run_id, key_id)
) strict, without rowid

-- table sinks
CREATE TABLE "sinks" (
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
) strict, without rowid

-- table slots
CREATE TABLE slots (
    tenant text not null,
    run_id text not null,
    workflow text not null,
    most integer check (most is null or most > 0),
    priority integer not null,
    asked_at integer not null,
    granted_at integer,
    primary key (tenant, run_id)
) strict

-- table sqlite_sequence
CREATE TABLE sqlite_sequence(name,seq)

-- table steps
CREATE TABLE steps (
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
) strict, without rowid

-- table stream_rows
CREATE TABLE stream_rows (
    tenant text not null,
    run_id text not null,
    seq integer not null check (seq > 0),
    no integer not null,
    name text not null,
    fence integer not null check (fence > 0),
    start integer not null check (start >= 0),
    count integer not null check (count > 0),
    total integer not null check (total > 0),
    at integer not null,
    after_fence integer,
    after_place integer,
    body text not null check (json_valid(body)),
    primary key (tenant, run_id, seq),
    check (after_fence is null or (start = 0 and after_fence < fence)),
    check ((after_fence is null) = (after_place is null))
) strict

-- table tenants
CREATE TABLE tenants (
    name       text not null primary key,
    vouching   text not null,
    created_at integer not null,
    created_by text not null,
    constraint tenant_vouching check (vouching in ('allowed', 'refused'))
) strict, without rowid

-- table triggers
CREATE TABLE triggers (
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
) strict

-- table worker_journal
CREATE TABLE worker_journal (
    tenant    text not null,
    worker_id text not null,
    seq       integer not null check (seq > 0),
    at        integer not null,
    body      blob not null,
    hash      blob not null check (length(hash) = 32),
    primary key (tenant, worker_id, seq)
) strict

-- table worker_reports
CREATE TABLE worker_reports (
    tenant      text not null,
    worker      integer not null,
    reported_at integer not null,
    body        text not null check (json_valid(body)),
    primary key (tenant, worker)
) strict, without rowid

-- table workers
CREATE TABLE workers (
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
) strict

-- trigger adoption_keeps_its_source
CREATE TRIGGER adoption_keeps_its_source before update on adoptions
when old.source_run <> new.source_run or old.source_step <> new.source_step or new.owned > old.owned
begin
    select raise(abort, 'an adoption keeps its source, and gives the undo away once');
end

-- trigger attempt_never_changes
CREATE TRIGGER attempt_never_changes before update on attempts
begin
    select raise(abort, 'an attempt is written once, when it ends');
end

-- trigger audit_never_changes
CREATE TRIGGER audit_never_changes before update on audit
begin
    select raise(abort, 'the audit log is only ever added to');
end

-- trigger checkpoint_never_changes
CREATE TRIGGER checkpoint_never_changes before update on checkpoints
begin
    select raise(abort, 'a checkpoint never changes');
end

-- trigger closed_gate_never_changes
CREATE TRIGGER closed_gate_never_changes before update on gates
when old.closed_at is not null or old.opened_at <> new.opened_at or old.shown <> new.shown
    or old.shown_digest <> new.shown_digest or new.level < old.level
begin
    select raise(abort, 'a gate keeps what it showed, and is closed once');
end

-- trigger consumed_message_never_changes
CREATE TRIGGER consumed_message_never_changes before update on messages
when old.consumed_by is not null
begin
    select raise(abort, 'a consumed message never changes');
end

-- trigger decision_never_changes
CREATE TRIGGER decision_never_changes before update on decisions
begin
    select raise(abort, 'a decision never changes');
end

-- trigger definition_is_never_deleted
CREATE TRIGGER definition_is_never_deleted before delete on definitions
begin
    select raise(abort, 'a published definition never changes; publish a new version');
end

-- trigger definition_never_changes
CREATE TRIGGER definition_never_changes before update on definitions
begin
    select raise(abort, 'a published definition never changes; publish a new version');
end

-- trigger delegation_stays
CREATE TRIGGER delegation_stays before delete on delegations
begin
    select raise(abort, 'a delegation is revoked, never deleted');
end

-- trigger delivered_message_stays_delivered
CREATE TRIGGER delivered_message_stays_delivered before update on mailbox
when old.run_id is not null and old.forget_at > new.arrived_at
begin
    select raise(abort, 'a delivered message never changes');
end

-- trigger delivery_action_never_changes
CREATE TRIGGER delivery_action_never_changes before update on delivery_actions
begin
    select raise(abort, 'what people did to deliveries stays on record');
end

-- trigger delivery_action_stays
CREATE TRIGGER delivery_action_stays before delete on delivery_actions
begin
    select raise(abort, 'what people did to deliveries stays on record');
end

-- trigger delivery_fence_only_grows
CREATE TRIGGER delivery_fence_only_grows before update of fence on deliveries when new.fence < old.fence
begin
    select raise(abort, 'the fence of a delivery only grows');
end

-- trigger delivery_is_not_taken_back
CREATE TRIGGER delivery_is_not_taken_back before update of sent, sent_number on deliveries
when new.sent < old.sent or (new.sent = old.sent and new.sent_number < old.sent_number)
begin
    select raise(abort, 'what was delivered stays delivered');
end

-- trigger ended_delegation_never_changes
CREATE TRIGGER ended_delegation_never_changes before update on delegations
when old.revoked_at is not null
    or (old.delegator, old.delegate, old.granted_at, old.granted_by, old.reason)
        <> (new.delegator, new.delegate, new.granted_at, new.granted_by, new.reason)
    or old.valid_from is not new.valid_from or old.valid_to is not new.valid_to
begin
    select raise(abort, 'a delegation is only ever added, and revoked once');
end

-- trigger ended_membership_never_changes
CREATE TRIGGER ended_membership_never_changes before update on memberships
when old.revoked_at is not null
    or (old.subject, old.subject_kind, old.kind, old.name, old.granted_at, old.granted_by)
        <> (new.subject, new.subject_kind, new.kind, new.name, new.granted_at, new.granted_by)
    or old.valid_from is not new.valid_from or old.valid_to is not new.valid_to
begin
    select raise(abort, 'a membership is only ever added, and revoked once');
end

-- trigger ended_session_never_changes
CREATE TRIGGER ended_session_never_changes before update on sessions
when old.ended_at is not null
    or (old.owner, old.key, old.secret_hash, old.created_at, old.expires_at)
        <> (new.owner, new.key, new.secret_hash, new.created_at, new.expires_at)
begin
    select raise(abort, 'a session keeps its key and its limit, and ends once');
end

-- trigger finished_run_never_changes
CREATE TRIGGER finished_run_never_changes before update on runs
when old.ended_at is not null or new.seq < old.seq
begin
    select raise(abort, 'a finished run never changes, and the journal of a run only grows');
end

-- trigger finished_step_never_changes
CREATE TRIGGER finished_step_never_changes before update on steps
when old.settled is not null or new.fence < old.fence
begin
    select raise(abort, 'a finished step never changes, and its fence only grows');
end

-- trigger fired_moment_never_changes
CREATE TRIGGER fired_moment_never_changes before update on firings
when old.run_id is not null and old.run_id is not new.run_id
begin
    select raise(abort, 'a moment fires once: its run never changes');
end

-- trigger journal_never_changes
CREATE TRIGGER journal_never_changes before update on journal
begin
    select raise(abort, 'the journal is only ever added to');
end

-- trigger key_keeps_its_limits
CREATE TRIGGER key_keeps_its_limits before update on api_keys
when old.queues is not new.queues or old.handlers is not new.handlers
begin
    select raise(abort, 'a key keeps the queues and handlers that it is limited to: make another one');
end

-- trigger key_keeps_its_quotas
CREATE TRIGGER key_keeps_its_quotas before update on api_keys
when old.max_concurrent_runs is not new.max_concurrent_runs
    or old.max_requests_per_min is not new.max_requests_per_min
begin
    select raise(abort, 'a key keeps its quotas: rotate it, or make another one');
end

-- trigger living_worker_keeps_its_journal
CREATE TRIGGER living_worker_keeps_its_journal before delete on worker_journal
when exists (select 1 from workers where tenant = old.tenant and id = old.worker_id and state <> 'shutdown')
begin
    select raise(abort, 'only the journal of a worker that was shut down can be deleted');
end

-- trigger membership_stays
CREATE TRIGGER membership_stays before delete on memberships
begin
    select raise(abort, 'a membership is revoked, never deleted');
end

-- trigger people_journal_never_changes
CREATE TRIGGER people_journal_never_changes before update on people_journal
begin
    select raise(abort, 'the journal of people is only ever added to');
end

-- trigger people_journal_stays
CREATE TRIGGER people_journal_stays before delete on people_journal
begin
    select raise(abort, 'the journal of people is never deleted');
end

-- trigger policy_never_changes
CREATE TRIGGER policy_never_changes before update on policies
begin
    select raise(abort, 'a policy is only ever added: publish another revision');
end

-- trigger policy_stays
CREATE TRIGGER policy_stays before delete on policies
begin
    select raise(abort, 'a policy is never deleted: verdicts on record refer to it');
end

-- trigger quarantine_is_never_deleted
CREATE TRIGGER quarantine_is_never_deleted before delete on quarantine
begin
    select raise(abort, 'the record of a quarantine is kept');
end

-- trigger quarantine_only_grows
CREATE TRIGGER quarantine_only_grows before update on quarantine
when old.released_at is not null or new.released_at is null or new.id <> old.id or new.tenant <> old.tenant
    or new.run_id <> old.run_id or new.quarantined_at <> old.quarantined_at
    or new.quarantined_by <> old.quarantined_by or new.reason <> old.reason
begin
    select raise(abort, 'a quarantine is only ever released, once');
end

-- trigger revoked_key_never_changes
CREATE TRIGGER revoked_key_never_changes before update on api_keys
when old.revoked_at is not null
    or (old.owner, old.secret_hash, old.scopes, old.created_at, old.created_by)
        <> (new.owner, new.secret_hash, new.scopes, new.created_at, new.created_by)
    or (old.expires_at is not null and (new.expires_at is null or new.expires_at > old.expires_at))
begin
    select raise(abort, 'a key keeps its owner, secret and scopes, never gets a later end, and is revoked once');
end

-- trigger run_starts_before_it_runs
CREATE TRIGGER run_starts_before_it_runs before update of state on runs
when new.state <> old.state and (
    new.seq = old.seq or (old.state = 'idle' and new.started_at is null and new.state <> 'cancelled'))
begin
    select raise(abort, 'a run changes its state with a journal entry, and leaves idle when it is started');
end

-- trigger schema_is_never_deleted
CREATE TRIGGER schema_is_never_deleted before delete on schemas
begin
    select raise(abort, 'a published schema never changes; publish it under another reference');
end

-- trigger schema_never_changes
CREATE TRIGGER schema_never_changes before update on schemas
begin
    select raise(abort, 'a published schema never changes; publish it under another reference');
end

-- trigger setting_never_changes
CREATE TRIGGER setting_never_changes before update on settings
begin
    select raise(abort, 'a setting is only ever added: save another revision');
end

-- trigger setting_stays
CREATE TRIGGER setting_stays before delete on settings
begin
    select raise(abort, 'a setting is never deleted: its revisions are the record of its changes');
end

-- trigger signed_head_never_changes
CREATE TRIGGER signed_head_never_changes before update on signed_heads
begin
    select raise(abort, 'a signature is only ever added');
end

-- trigger slot_is_granted_once
CREATE TRIGGER slot_is_granted_once before update on slots
when old.granted_at is not null or new.granted_at is null
begin
    select raise(abort, 'a slot is granted to a run once');
end

-- trigger trigger_goes_on
CREATE TRIGGER trigger_goes_on before update on triggers
when new.seq <= old.seq
begin
    select raise(abort, 'each change of a trigger has a new sequence number');
end

-- trigger unfinished_run_keeps_its_adoptions
CREATE TRIGGER unfinished_run_keeps_its_adoptions before delete on adoptions
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the adoptions of a finished run can be deleted');
end

-- trigger unfinished_run_keeps_its_attempts
CREATE TRIGGER unfinished_run_keeps_its_attempts before delete on attempts
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the attempts of a finished run can be deleted');
end

-- trigger unfinished_run_keeps_its_checkpoints
CREATE TRIGGER unfinished_run_keeps_its_checkpoints before delete on checkpoints
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the checkpoints of a finished run can be deleted');
end

-- trigger unfinished_run_keeps_its_children
CREATE TRIGGER unfinished_run_keeps_its_children before delete on children
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the links to children of a finished run can be deleted');
end

-- trigger unfinished_run_keeps_its_decisions
CREATE TRIGGER unfinished_run_keeps_its_decisions before delete on decisions
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the decisions of a finished run can be deleted');
end

-- trigger unfinished_run_keeps_its_gates
CREATE TRIGGER unfinished_run_keeps_its_gates before delete on gates
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the gates of a finished run can be deleted');
end

-- trigger unfinished_run_keeps_its_journal
CREATE TRIGGER unfinished_run_keeps_its_journal before delete on journal
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the journal of a finished run can be deleted');
end

-- trigger unfinished_run_keeps_its_slot
CREATE TRIGGER unfinished_run_keeps_its_slot before delete on slots
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the slot of a finished run can be deleted');
end

-- trigger unfinished_run_keeps_its_steps
CREATE TRIGGER unfinished_run_keeps_its_steps before delete on steps
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the steps of a finished run can be deleted');
end

-- trigger unfinished_run_stays
CREATE TRIGGER unfinished_run_stays before delete on runs
when old.ended_at is null
begin
    select raise(abort, 'only a finished run can be deleted');
end

-- trigger worker_journal_never_changes
CREATE TRIGGER worker_journal_never_changes before update on worker_journal
begin
    select raise(abort, 'the journal of a worker is only ever added to');
end

-- trigger worker_keeps_its_owner
CREATE TRIGGER worker_keeps_its_owner before update of owner on workers
when old.owner is not new.owner
begin
    select raise(abort, 'a worker keeps its owner: register another worker');
end

-- view attempt_view
CREATE VIEW attempt_view as
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
left join workers on workers.no = attempts.worker

-- view journal_view
CREATE VIEW journal_view as
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
left join step_name_view as named on named.definition_id = runs.definition_id and named.no = hop.value ->> 'no'

-- view run_view
CREATE VIEW run_view as
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
join run_details as details on details.tenant = runs.tenant and details.run_id = runs.id

-- view step_name_view
CREATE VIEW step_name_view as
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
select definition_id, 2 * size, 'check:run' from main where no = 0

-- view step_view
CREATE VIEW step_view as
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
left join workers on workers.no = steps.worker

-- view worker_view
CREATE VIEW worker_view as
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
from workers

