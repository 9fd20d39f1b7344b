-- The batch that was in a barn on a date, its first and its last day included; null if none was.
-- Batches of a barn never overlap: only the one that was placed last before can have been there.
create or replace function fn_batch_at(tenant text, farm text, barn text, on_date date) returns text
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select last.batch_id from (
    select b.batch_id, b.closed_on from public.batches b
    where b.tenant_id = fn_batch_at.tenant and b.farm_id = fn_batch_at.farm
      and b.barn_id = fn_batch_at.barn and b.placed_on <= fn_batch_at.on_date
    order by b.placed_on desc limit 1) last
  where last.closed_on is null or last.closed_on >= fn_batch_at.on_date
$$;
revoke execute on function fn_batch_at(text, text, text, date) from public;
grant execute on function fn_batch_at(text, text, text, date) to authenticated, farmiq_service;
