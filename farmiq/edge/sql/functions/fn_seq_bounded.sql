-- The ranges with at most `most` gaps between them, the highest; the numbers missing in the others
-- are counted and forgotten, so that a device that leaves out every second number stays small.
create or replace function fn_seq_bounded(
  seen int8multirange, most int, out bounded int8multirange, out forgotten bigint)
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  with ranges as (
    select r, row_number() over (order by r desc) as place from unnest(seen) r
  ), low as (
    select range_agg(r) as parts, range_merge(range_agg(r)) as whole
    from ranges where place > most
  )
  select
    case when low.parts is null then seen else seen + low.whole::int8multirange end,
    coalesce(
      (select sum(upper(m) - lower(m)) from unnest(low.whole::int8multirange - low.parts) m), 0
    )::bigint
  from low
$$;
