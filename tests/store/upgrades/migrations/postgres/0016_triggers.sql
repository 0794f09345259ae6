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

create index triggers_due on triggers (due_at) where due_at is not null;
create index triggers_workflow on triggers (tenant, workflow, name);
create index triggers_kind on triggers (tenant, kind, name);
create index firings_due on firings (tenant, trigger_name, due_at, moment);
create index firings_watched on firings (tenant, trigger_name, due_at) where watched = 1;
create index firings_run on firings (tenant, run_id) where run_id is not null;
create index backfills_trigger on backfills (tenant, trigger_name, created_at, id);

create trigger fired_moment_never_changes after update on firings for each row
    when (old.run_id is not null and old.run_id is distinct from new.run_id)
    execute function stepkeep_refuse('a moment fires once: its run never changes');

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
comment on column triggers.cursor_at is 'The time up to which the runs of its topic were found';
comment on column triggers.paused_at is 'Since when it is paused';
comment on column triggers.paused_by is 'The actor who paused it';
comment on column triggers.created_at is 'When it was added';
comment on column triggers.created_by is 'The actor who added it';
comment on column triggers.removed_at is 'When it was removed; its firings stay';
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
