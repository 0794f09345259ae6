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
    todo_at integer,
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
