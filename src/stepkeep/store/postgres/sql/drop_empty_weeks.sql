-- Drop past weekly partitions of the journal that use no disk space any more.
select stepkeep_drop_empty_weeks()
