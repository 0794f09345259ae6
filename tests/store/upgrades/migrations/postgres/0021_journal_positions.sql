-- The transaction of each journal entry, so that what happens in a tenant can be followed in the order of transactions.
--
-- Entries that were there before have none and are not followed. A BRIN index adds next to nothing to a write.

alter table journal add column xact bigint;
alter table journal alter column xact set default pg_current_xact_id()::text::bigint;
create index journal_xact on journal using brin (xact) with (autosummarize = on);

comment on column journal.xact is 'The transaction that wrote the entry; null where it was written before this column was';
