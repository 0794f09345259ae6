-- The state of a step that waits for its children: runs of other workflows, or steps that it has added to the plan.
-- SQLite cannot change the rules of a table, so the table is written anew. It is not renamed: views name it.

create table steps_before as select * from steps;
drop table steps;

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

insert into steps select * from steps_before;
drop table steps_before;

create index steps_claim on steps (queue, priority desc, ready_at, run_id, no) where ready_at is not null;
create index steps_due on steps (due_at) where due_at is not null;
create index steps_ready on steps (tenant, run_id, no) where ready_at is not null;

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
