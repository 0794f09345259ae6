-- Give business keys back.
delete from business_keys
where tenant = ?1 and key = ?2
