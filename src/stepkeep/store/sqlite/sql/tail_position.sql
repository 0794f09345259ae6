-- Read the position behind the last entry.
select ifnull(max(rowid), 0) from journal
