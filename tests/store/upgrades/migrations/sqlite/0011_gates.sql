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

create trigger closed_gate_never_changes before update on gates
when old.closed_at is not null or old.opened_at <> new.opened_at or old.shown <> new.shown
    or old.shown_digest <> new.shown_digest or new.level < old.level
begin
    select raise(abort, 'a gate keeps what it showed, and is closed once');
end;

create trigger decision_never_changes before update on decisions
begin
    select raise(abort, 'a decision never changes');
end;

create trigger unfinished_run_keeps_its_gates before delete on gates
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the gates of a finished run can be deleted');
end;

create trigger unfinished_run_keeps_its_decisions before delete on decisions
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the decisions of a finished run can be deleted');
end;
