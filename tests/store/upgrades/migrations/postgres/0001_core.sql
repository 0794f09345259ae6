-- The core: definitions and queues; runs with their steps, attempts, journal, inbox and outbox; keys; workers.
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

create table queues (
    id integer generated always as identity primary key,
    tenant text collate "C" not null,
    spec text collate "C" not null,
    unique (tenant, spec)
);

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
    primary key (tenant, run_id)
);

create index run_details_workflow on run_details (tenant, workflow, run_id);
create index run_details_business_key on run_details (tenant, business_key, run_id) where business_key is not null;
create index run_details_correlation on run_details (tenant, correlation_id, run_id)
    where correlation_id <> run_id::text;

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

create index steps_claim on steps (queue, priority desc, ready_at, run_id, no) where ready_at is not null;
create index steps_due on steps (due_at) where due_at is not null;

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

-- Range by run id is range by time, because run ids begin with the moment of the start. Weeks are added ahead of time
-- by stepkeep_extend_journal and dropped when retention has emptied them; the default takes what fits none.

create table journal (
    tenant text collate "C" not null,
    run_id uuid not null,
    seq bigint not null,
    at bigint not null,
    body bytea not null,
    hash bytea not null,
    primary key (run_id, seq, tenant),
    constraint entry_is_sealed check (seq > 0 and length(hash) = 32)
) partition by range (run_id);

create table journal_default partition of journal default with (autovacuum_vacuum_insert_scale_factor = 0.1);

create table messages (
    tenant text collate "C" not null,
    run_id uuid not null,
    number integer not null,
    arrived_at bigint not null,
    consumed_by integer,
    id text collate "C" not null,
    name text collate "C" not null,
    payload bytea not null,
    sender text not null,
    primary key (tenant, run_id, number),
    unique (tenant, run_id, id)
);

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

create table idempotency_keys (
    tenant text collate "C" not null,
    operation text collate "C" not null,
    key text collate "C" not null,
    fingerprint text not null,
    run_id uuid not null,
    primary key (tenant, operation, key)
);

create index idempotency_keys_run on idempotency_keys (tenant, run_id);

create table business_keys (
    tenant text collate "C" not null,
    key text collate "C" not null,
    run_id uuid not null,
    primary key (tenant, key)
);

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
    primary key (tenant, id),
    constraint worker_counters check (least(incarnation, capacity, seq) >= 0),
    constraint worker_state check (state in (
        'initializing', 'idle', 'busy', 'unresponsive', 'draining', 'shutdown'))
) with (fillfactor = 70);

create index workers_living on workers (tenant, no) where state <> 'shutdown';

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

-- What rows may say. Each table has one function for all its rules rather than a constraint for each: the server reads and
-- plans a constraint anew with every statement, which was a quarter of the time of a small write, and keeps a function.
-- Rows of the commonest shapes are seen to be sound without calling it. A rule that is broken is named as a constraint
-- would be. Only built-in functions are called, because a restored dump checks its rows with an empty search path.

create function stepkeep_run_is_sound(run runs) returns boolean language plpgsql immutable as $$
declare
    broken constant text := case
        when run.state not in (
            'idle', 'queued', 'running', 'blocked', 'validating', 'stopping', 'compensating',
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

create function stepkeep_step_is_sound(step steps) returns boolean language plpgsql immutable as $$
declare
    broken text := case
        when step.state not in (
            'pending', 'ready', 'running', 'validating', 'retrying', 'awaiting_approval', 'awaiting_event',
            'awaiting_completion', 'succeeded', 'failed', 'skipped', 'cancelled') then 'step_state'
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
            and step.state not in ('retrying', 'awaiting_approval', 'awaiting_event', 'awaiting_completion')
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

alter table attempts add constraint attempt_is_sound check (
    (state = 'succeeded' and category is null and fence > 0 and number >= 0)
    or stepkeep_attempt_is_sound(state, category, fence, number));

-- Finished is final. The WHEN clauses are all that the normal path pays, and are short because the server reads them anew
-- with every statement: a run has ended where it has an end, a step where it has its place. These triggers fire after the
-- row is written because one that fires before would lock every row a second time.

create function stepkeep_refuse() returns trigger language plpgsql as $$
begin
    raise exception using errcode = 'check_violation', message = tg_argv[0], table = tg_table_name;
end $$;

create trigger finished_run_never_changes after update on runs for each row
    when (old.ended_at is not null or new.seq < old.seq)
    execute function stepkeep_refuse('a finished run never changes, and the journal of a run only grows');

create trigger finished_step_never_changes after update on steps for each row
    when (old.settled is not null or new.fence < old.fence)
    execute function stepkeep_refuse('a finished step never changes, and its fence only grows');

create trigger consumed_message_never_changes after update on messages for each row
    when (old.consumed_by is not null)
    execute function stepkeep_refuse('a consumed message never changes');

-- The record is only ever added to.

create trigger journal_never_changes after update on journal for each row
    execute function stepkeep_refuse('the journal is only ever added to');

create trigger worker_journal_never_changes after update on worker_journal for each row
    execute function stepkeep_refuse('the journal of a worker is only ever added to');

create trigger attempt_never_changes after update on attempts for each row
    execute function stepkeep_refuse('an attempt is written once, when it ends');

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

create trigger unfinished_run_stays after delete on runs for each row
    when (old.state not in ('succeeded', 'failed', 'cancelled', 'rolled_back'))
    execute function stepkeep_refuse('only a finished run can be deleted');

create trigger unfinished_run_keeps_its_steps after delete on steps
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the steps of a finished run can be deleted');

create trigger unfinished_run_keeps_its_attempts after delete on attempts
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the attempts of a finished run can be deleted');

create trigger unfinished_run_keeps_its_journal after delete on journal
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the journal of a finished run can be deleted');

create trigger unfinished_run_keeps_its_journal after delete on journal_default
    referencing old table as gone for each statement
    execute function stepkeep_keep_unfinished('only the journal of a finished run can be deleted');

create trigger living_worker_keeps_its_journal before delete on worker_journal for each row
    execute function stepkeep_keep_living('only the journal of a worker that was shut down can be deleted');

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
