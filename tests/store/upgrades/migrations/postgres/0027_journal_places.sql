-- Nothing to change: entries are followed by the number of their transaction (0021).

select 1;
