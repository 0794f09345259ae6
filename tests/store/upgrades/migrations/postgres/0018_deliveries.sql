-- Sinks, the delivery cursors of runs, and what people did to them.

create table sinks (
    tenant text collate "C" not null,
    name text collate "C" not null,
    kind text not null,
    takes integer not null check (takes between 1 and 15),
    prefix text collate "C" not null,
    patterns text not null,
    options bytea not null,
    created_at bigint not null,
    created_by text not null,
    primary key (tenant, name)
);

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

comment on table sinks is 'Destinations of events';
comment on column sinks.tenant is 'Whose row this is; part of every key';
comment on column sinks.name is 'The name of the sink';
comment on column sinks.kind is 'What sends to it: webhook, jsonl, handler, host, or one that was added';
comment on column sinks.takes is 'What it takes, added up: 1 emitted, 2 dialect, 4 transitions, 8 endings';
comment on column sinks.prefix is 'The text that every event type for it begins with';
comment on column sinks.patterns is 'Patterns of event types as JSON';
comment on column sinks.options is 'Options of its kind as JSON; secrets by name';
comment on column sinks.created_at is 'When it was added or replaced (microseconds since 1970)';
comment on column sinks.created_by is 'The actor';
comment on table deliveries is 'Cursors: how far the events of a run were delivered to a sink';
comment on column deliveries.tenant is 'Whose row this is; part of every key';
comment on column deliveries.run_id is 'The run it belongs to: runs.id';
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
comment on column deliveries.target is 'Where to, as JSON, if the run itself says so';
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
