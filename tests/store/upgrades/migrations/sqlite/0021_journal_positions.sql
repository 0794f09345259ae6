-- Nothing to add: entries are followed by rowid, because one connection writes at a time.

select 1;
