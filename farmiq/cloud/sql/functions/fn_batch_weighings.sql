-- The weighings of a batch on these local dates of its farm, and which of them are outliers: of five
-- or more of a day, those further from its median than 3.5 times the larger of 1.4826 MAD and 2 %.
-- A session counts for the batch that it names, else for the one that was in the barn that day; a
-- batch that its edge derived counts as fn_batch_of says.
create or replace function fn_batch_weighings(
  tenant text, batch text, first_date date, last_date date
) returns table (
  kpi_date date, session_id uuid, weight_kg double precision, is_outlier boolean,
  start_at timestamptz, device_id text
)
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  with of_batch as materialized (
    select b.tenant_id, b.batch_id, b.farm_id, b.barn_id, f.timezone,
      greatest(b.placed_on, fn_batch_weighings.first_date) as first_on,
      least(b.closed_on, fn_batch_weighings.last_date) as last_on
    from public.batches b
      join public.farms f on f.tenant_id = b.tenant_id and f.farm_id = b.farm_id
    where b.tenant_id = fn_batch_weighings.tenant and b.batch_id = fn_batch_weighings.batch
  ), span as materialized (
    select o.*, public.fn_midnight(o.timezone, o.first_on) as begin_at,
      public.fn_midnight(o.timezone, o.last_on + 1) as end_at,
      public.fn_zone_name(o.timezone) as zone
    from of_batch o where o.first_on <= o.last_on
  ), weighed as (
    select s.session_id, s.final_weight_kg, s.start_at, s.device_id, p.zone
    from span p join public.weight_sessions s
      on s.tenant_id = p.tenant_id and s.batch_id = p.batch_id
      and s.start_at >= p.begin_at and s.start_at < p.end_at
    where s.status = 'finalized' and s.final_weight_kg is not null and not s.clock_suspect
    union all
    select s.session_id, s.final_weight_kg, s.start_at, s.device_id, p.zone
    from span p join public.weight_sessions s
      on s.tenant_id = p.tenant_id and s.farm_id = p.farm_id and s.barn_id = p.barn_id
      and s.start_at >= p.begin_at and s.start_at < p.end_at
    where s.batch_id is null
      and s.status = 'finalized' and s.final_weight_kg is not null and not s.clock_suspect
    union all
    select s.session_id, s.final_weight_kg, s.start_at, s.device_id, p.zone
    from span p join public.weight_sessions s
      on s.tenant_id = p.tenant_id and s.farm_id = p.farm_id and s.barn_id = p.barn_id
      and s.start_at >= p.begin_at and s.start_at < p.end_at
    where s.batch_derived and s.batch_id <> p.batch_id
      and s.status = 'finalized' and s.final_weight_kg is not null and not s.clock_suspect
      and public.fn_batch_of(s.tenant_id, s.farm_id, s.barn_id, s.batch_id, true, s.start_at)
        = p.batch_id
  ), dated as materialized (
    select w.*, (w.start_at at time zone w.zone)::date as on_date from weighed w
  ), middle as (
    select d.on_date, count(*) as weighings,
      percentile_cont(0.5) within group (order by d.final_weight_kg) as median
    from dated d group by d.on_date
  ), spread as (
    select d.on_date, m.weighings, m.median,
      percentile_cont(0.5) within group (order by abs(d.final_weight_kg - m.median)) as mad
    from dated d join middle m on m.on_date = d.on_date
    group by d.on_date, m.weighings, m.median
  )
  select d.on_date, d.session_id, d.final_weight_kg,
    s.weighings >= 5 and abs(d.final_weight_kg - s.median)
      > 3.5 * greatest(1.4826 * s.mad, 0.02 * s.median),
    d.start_at, d.device_id
  from dated d join spread s on s.on_date = d.on_date
$$;
revoke execute on function fn_batch_weighings(text, text, date, date) from public;
grant execute on function fn_batch_weighings(text, text, date, date)
  to authenticated, farmiq_service;
