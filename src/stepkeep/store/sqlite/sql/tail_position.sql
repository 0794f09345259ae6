-- Read the position behind the last entry that was ever written.
select ifnull((select seq from sqlite_sequence where name = 'journal'), 0)
