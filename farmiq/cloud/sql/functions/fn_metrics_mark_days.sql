-- Other conversions or another plausible range of a metric that figures are made of mark all days of
-- the company's batches.
create or replace function fn_metrics_mark_days() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  changed public.metrics := coalesce(new, old);
begin
  if changed.metric_type not in ('temperature', 'humidity', 'water.flow')
    or tg_op = 'UPDATE' and (new.unit, new.conversions, new.min_plausible, new.max_plausible)
      is not distinct from (old.unit, old.conversions, old.min_plausible, old.max_plausible) then
    return null;
  end if;
  insert into public.analytics_dirty_days (tenant_id, batch_id, first_date)
  select b.tenant_id, b.batch_id, b.placed_on from public.batches b
  where b.tenant_id = changed.tenant_id;
  return null;
end $$;
revoke execute on function fn_metrics_mark_days() from public;
