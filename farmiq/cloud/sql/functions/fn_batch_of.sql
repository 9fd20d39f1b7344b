-- The batch that an event is of: the one that it names. One that was derived from the barn
-- (batch_derived) holds on the days of that batch, wherever it is now; on other days, and without
-- any, it is the batch that is in the barn. If there is none, it is the derived one still.
create or replace function fn_batch_of(
  tenant text, farm text, barn text, batch text, is_derived boolean, at timestamptz
) returns text
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case when fn_batch_of.batch is not null and not fn_batch_of.is_derived
    then fn_batch_of.batch
    else coalesce(
      (select b.batch_id from public.batches b
        join public.farms f on f.tenant_id = b.tenant_id and f.farm_id = b.farm_id
        where b.tenant_id = fn_batch_of.tenant and b.batch_id = fn_batch_of.batch
          and (fn_batch_of.at at time zone f.timezone)::date
            between b.placed_on and coalesce(b.closed_on, 'infinity')),
      public.fn_batch_at(fn_batch_of.tenant, fn_batch_of.farm, fn_batch_of.barn,
        public.fn_farm_date(fn_batch_of.tenant, fn_batch_of.farm, fn_batch_of.at)),
      fn_batch_of.batch) end
$$;
revoke execute on function fn_batch_of(text, text, text, text, boolean, timestamptz) from public;
grant execute on function fn_batch_of(text, text, text, text, boolean, timestamptz)
  to authenticated, farmiq_service;
