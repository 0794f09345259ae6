-- List the migrations that were applied.
select version, name, checksum
from migrations
order by version
