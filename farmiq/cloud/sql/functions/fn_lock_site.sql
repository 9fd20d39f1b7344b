-- Whoever opens a day of a site, or asks for or takes back a change of its schedules, does so alone
-- until the transaction ends: what a day expects and what is applied to it are one decision.
create or replace function fn_lock_site(site_id uuid) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select pg_advisory_xact_lock(hashtextextended('farmiq site ' || fn_lock_site.site_id, 0))
$$;
revoke execute on function fn_lock_site(uuid) from public;
grant execute on function fn_lock_site(uuid) to farmiq_jobs;
