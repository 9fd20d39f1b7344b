-- The stretches of time in which a zone (fn_zone_name) keeps its distance from UTC, in order: when each
-- begins, in UTC (the first: ever), and the distance. Looked for from one moment in UTC to another.
create or replace function fn_zone_stretches(
  timezone text, first_at timestamp, last_at timestamp,
  out starts timestamp[], out offsets interval[])
language plpgsql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  probed_at timestamp := first_at;
  utc_offset interval;
  early timestamp;
  late timestamp;
  middle timestamp;
begin
  starts := array['-infinity'::timestamp];
  offsets := array[first_at at time zone 'UTC' at time zone fn_zone_stretches.timezone - first_at];
  -- No zone has ever changed twice within three hours.
  while probed_at <= last_at loop
    utc_offset :=
      probed_at at time zone 'UTC' at time zone fn_zone_stretches.timezone - probed_at;
    if utc_offset <> offsets[cardinality(offsets)] then
      late := probed_at;
      early := late - interval '3 hours';
      while late - early > interval '1 second' loop
        middle := early + date_trunc('second', (late - early) / 2);
        if middle at time zone 'UTC' at time zone fn_zone_stretches.timezone - middle
          = utc_offset then
          late := middle;
        else
          early := middle;
        end if;
      end loop;
      starts := starts || late;
      offsets := offsets || utc_offset;
    end if;
    probed_at := probed_at + interval '3 hours';
  end loop;
end $$;
revoke execute on function fn_zone_stretches(text, timestamp, timestamp) from public;
grant execute on function fn_zone_stretches(text, timestamp, timestamp)
  to authenticated, farmiq_service, farmiq_jobs;
