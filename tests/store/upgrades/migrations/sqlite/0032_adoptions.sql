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
create index run_details_reruns on run_details (tenant, rerun_of, run_id) where rerun_of is not null;

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
