-- Which of these dates, from the first to the last, has not 24 hours; null if all have.
create or replace function fn_dst_note(timezone text, first_date date, last_date date) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select string_agg(
    format('%s has %s hours in %s: the clocks change.', d.day,
      trim_scale(round(extract(epoch from d.lasts) / 3600, 2)), fn_dst_note.timezone),
    ' ' order by d.day)
  from (
    select day::date,
      public.fn_midnight(fn_dst_note.timezone, day::date + 1)
        - public.fn_midnight(fn_dst_note.timezone, day::date) as lasts
    from generate_series(first_date::timestamp, last_date::timestamp, interval '1 day') day) d
  where d.lasts <> interval '24 hours'
$$;
revoke execute on function fn_dst_note(text, date, date) from public;
grant execute on function fn_dst_note(text, date, date) to farmiq_jobs;
