-- Create the missing weekly partitions of the journal, this one and this many ahead.
select stepkeep_extend_journal($1::int)
