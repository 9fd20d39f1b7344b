-- The barn records that count for a batch on these local dates of its farm (fn_batch_of).
create or replace function fn_batch_records(
  tenant text, batch text, first_date date, last_date date
) returns table (
  kpi_date date, record_id text, record_type text, value_number double precision, unit text,
  occurred_at timestamptz
)
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  with of_batch as materialized (
    select b.tenant_id, b.batch_id, b.farm_id, b.barn_id, f.timezone,
      greatest(b.placed_on, fn_batch_records.first_date) as first_on,
      least(b.closed_on, fn_batch_records.last_date) as last_on
    from public.batches b
      join public.farms f on f.tenant_id = b.tenant_id and f.farm_id = b.farm_id
    where b.tenant_id = fn_batch_records.tenant and b.batch_id = fn_batch_records.batch
  ), span as materialized (
    select o.*, public.fn_midnight(o.timezone, o.first_on) as begin_at,
      public.fn_midnight(o.timezone, o.last_on + 1) as end_at,
      public.fn_zone_name(o.timezone) as zone
    from of_batch o where o.first_on <= o.last_on
  ), noted as (
    select r.*, p.zone from span p join public.counted_records r
      on r.tenant_id = p.tenant_id and r.batch_id = p.batch_id
      and r.occurred_at >= p.begin_at and r.occurred_at < p.end_at
    union all
    select r.*, p.zone from span p join public.counted_records r
      on r.tenant_id = p.tenant_id and r.farm_id = p.farm_id and r.barn_id = p.barn_id
      and r.occurred_at >= p.begin_at and r.occurred_at < p.end_at
    where r.batch_id is null or r.batch_derived and r.batch_id <> p.batch_id
      and public.fn_batch_of(r.tenant_id, r.farm_id, r.barn_id, r.batch_id, true, r.occurred_at)
        = p.batch_id
  )
  select (n.occurred_at at time zone n.zone)::date, n.record_id, n.record_type, n.value_number,
    n.unit, n.occurred_at
  from noted n where not n.clock_suspect
$$;
revoke execute on function fn_batch_records(text, text, date, date) from public;
grant execute on function fn_batch_records(text, text, date, date) to authenticated, farmiq_service;
