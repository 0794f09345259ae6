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

create index triggers_due on triggers (due_at) where due_at is not null;
create index triggers_workflow on triggers (tenant, workflow, name);
create index triggers_kind on triggers (tenant, kind, name);
create index firings_due on firings (tenant, trigger_name, due_at, moment);
create index firings_watched on firings (tenant, trigger_name, due_at) where watched = 1;
create index firings_run on firings (tenant, run_id) where run_id is not null;
create index backfills_trigger on backfills (tenant, trigger_name, created_at, id);

create trigger fired_moment_never_changes before update on firings
when old.run_id is not null and old.run_id is not new.run_id
begin
    select raise(abort, 'a moment fires once: its run never changes');
end;

create trigger trigger_goes_on before update on triggers
when new.seq <= old.seq
begin
    select raise(abort, 'each change of a trigger has a new sequence number');
end;
