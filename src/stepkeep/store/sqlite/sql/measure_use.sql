-- Tell how many rows of one kind a tenant has, and their bytes, counted up to a number of rows.
select count(*), coalesce(sum(size), 0)
from (
    select length(payload) as size from mailbox where ?2 = 'messages' and tenant = ?1 and payload is not null
    union all
    select length(spec) from triggers where ?2 = 'triggers' and tenant = ?1
    union all
    select length(document) from definitions where ?2 = 'definitions' and tenant = ?1
    union all
    select length(document) from schemas where ?2 = 'definitions' and tenant = ?1
    union all
    select length(document) from settings where ?2 = 'settings' and tenant = ?1
    union all
    select length(document) from policies where ?2 = 'settings' and tenant = ?1
    union all
    select 0 from principals where ?2 = 'people' and tenant = ?1
    union all
    select 0 from memberships where ?2 = 'people' and tenant = ?1
    union all
    select 0 from delegations where ?2 = 'people' and tenant = ?1
    union all
    select 0 from api_keys where ?2 = 'people' and tenant = ?1
    union all
    select octet_length(body) from stream_rows where ?2 = 'streams' and tenant = ?1
    limit ?3
)
