-- A cron expression taken apart, or what is wrong with it; all null for null. Five fields as cronsim
-- 2.8 reads them (D-142), of printable ASCII and tabs.
-- both_days: day of month and day of week must both match, since one of them begins with a star.
-- by_the_clock: the minute or the hour begins with a star, so the wake follows the hands of the clock:
-- times that come twice count twice, times that are left out do not count (C-56).
create or replace function fn_cron_schedule(
  cron_expression text,
  out minutes integer[], out hours integer[], out days integer[], out months integer[],
  out weekdays integer[], out both_days boolean, out by_the_clock boolean, out problem text)
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  names constant text[] := array['minute', 'hour', 'day of month', 'month', 'day of week'];
  fields constant text[] := regexp_split_to_array(
    btrim(upper(left(cron_expression, 1001) collate "C"), E' \t'), '[ \t]+');
  field_count constant integer := cardinality(fields);
  field record;
begin
  if cron_expression is null then
    return;
  end if;
  problem := case
    when length(cron_expression) > 1000 then
      format('The cron expression has %s characters; 1000 are enough for any.', length(cron_expression))
    when cron_expression collate "C" ~ '[^ -~\t]' then
      format('Character %s of the cron expression is a control character or not ASCII.',
        length(substring(cron_expression collate "C" from '^[ -~\t]*')) + 1)
    when fields[1] = '' then 'The cron expression is empty.'
    when fields[1] like '@%' then
      format('"%s" is a nickname: write five fields (minute, hour, day of month, month, day of week).',
        left(lower(fields[1]), 40))
    when field_count = 6 then
      'The cron expression has six fields: seconds are not possible, write five fields (minute, hour, '
      'day of month, month, day of week).'
    when field_count <> 5 then
      format('The cron expression has %s field%s, not five (minute, hour, day of month, month, day of '
        'week).', field_count, case when field_count > 1 then 's' else '' end)
  end;
  if problem is not null then
    return;
  end if;
  for number in 1 .. 5 loop
    field := public.fn_cron_field(number, fields[number]);
    if field.problem is not null then
      problem := format('Field %s of 5, the %s: %s.', number, names[number], field.problem);
      return;
    end if;
    case number
      when 1 then minutes := field.chosen;
      when 2 then hours := field.chosen;
      when 3 then days := field.chosen;
      when 4 then months := field.chosen;
      else weekdays := field.chosen;
    end case;
  end loop;
  both_days := fields[3] like '*%' or fields[5] like '*%';
  by_the_clock := fields[1] like '*%' or fields[2] like '*%';
  if both_days and days[1] in (30, 31) and days[cardinality(days)] <= 31
    and days[1] > (select max(case when m = 2 then 29 when m in (4, 6, 9, 11) then 30 else 31 end)
                   from unnest(months) m) then
    problem := format('Field 3 of 5, the day of month: no month of "%s" has a day %s.',
      left(fields[4], 40), days[1]);
  end if;
end $$;
revoke execute on function fn_cron_schedule(text) from public;
grant execute on function fn_cron_schedule(text) to authenticated, farmiq_service, farmiq_jobs;
