-- Give each entry of a journal a place that never changes and is never used again, for streams that follow all of them.
-- A rowid without a column of its own may be given anew by VACUUM.

create table journal_before as
select rowid as place, tenant, run_id, seq, at, body, hash from journal;

drop table journal;

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

insert into journal (place, tenant, run_id, seq, at, body, hash)
select place, tenant, run_id, seq, at, body, hash from journal_before order by place;

drop table journal_before;

create trigger journal_never_changes before update on journal
begin
    select raise(abort, 'the journal is only ever added to');
end;

create trigger unfinished_run_keeps_its_journal before delete on journal
when exists (select 1 from runs where tenant = old.tenant and id = old.run_id and ended_at is null)
begin
    select raise(abort, 'only the journal of a finished run can be deleted');
end;
