-- One field of a cron expression in capitals: the values it chooses, in order, or what is wrong with it.
-- Fields count from 1: minute, hour, day of month, month, day of week. What is no plain number has a
-- code: 1000 the last day of the month (L), 1001 its last weekday (LW); with a day of week d from 0 to
-- 7, 100 * n + d is the n-th of the month (d#n) and 900 + d the last (dL).
create or replace function fn_cron_field(
  field integer, spec text, out chosen integer[], out problem text)
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  lowest constant integer := (array[0, 0, 1, 1, 0])[field];
  highest constant integer := (array[59, 23, 31, 12, 7])[field];
  names constant text[] := case field
    when 4 then array['JAN', 'FEB', 'MAR', 'APR', 'MAY', 'JUN', 'JUL', 'AUG', 'SEP', 'OCT', 'NOV', 'DEC']
    when 5 then array['SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT']
    else '{}' end;
  allowed constant text := (array[
    'a number from 0 to 59', 'a number from 0 to 23', 'a number from 1 to 31, L or LW',
    'a number from 1 to 12 or JAN to DEC',
    'a number from 0 to 7 (0 and 7 are Sunday), SUN to SAT, 5L or 5#2'])[field];
  term text;
  parts text[];
  step integer;
  first integer;
  last integer;
begin
  chosen := '{}';
  -- The usual fields without a query: every wake that a camera is told reads five of them.
  if spec ~ '^\*(/[1-9][0-9]?)?$' then
    for value in lowest .. highest by coalesce(substr(nullif(spec, '*'), 3)::integer, 1) loop
      chosen := chosen || value;
    end loop;
    return;
  elsif spec ~ '^[0-9]{1,2}$' and spec::integer between lowest and highest then
    chosen := array[spec::integer];
    return;
  end if;
  foreach term in array string_to_array(spec, ',') loop
    parts := regexp_match(term,
      case when field = 3 then '^(\*|[0-9]+|LW?)(?:(-)([0-9]+))?(?:/([0-9]+))?$'
        when field = 5 and term ~ 'L' then '^([0-9]+)(L)$'
        when field = 5 and term ~ '#' then '^([A-Z]+|[0-9]+)(#)([0-9]+)$'
        else '^(\*|[A-Z]+|[0-9]+)(?:(-)([A-Z]+|[0-9]+))?(?:/([0-9]+))?$' end);
    step := case when parts[4] ~ '^0*[0-9]{1,4}$' then parts[4]::integer
      when parts[4] is not null then 10000 else 1 end;
    first := case when parts[1] = '*' then lowest
      when parts[1] ~ '^0*[0-9]{1,2}$' then parts[1]::integer
      else array_position(names, parts[1]) + lowest - 1 end;
    last := case when parts[2] is null then first
      when parts[3] ~ '^0*[0-9]{1,2}$' then parts[3]::integer
      else array_position(names, parts[3]) + lowest - 1 end;
    if term = '' then
      problem := 'a value is missing beside a comma';
    elsif step = 0 then
      problem := format('the step in "%s" must not be 0', left(term, 40));
    elsif field = 3 and parts[1] ~ '^L' and parts[2] is null then
      chosen := chosen || case parts[1] when 'L' then 1000 else 1001 end;
    elsif parts[2] = 'L' and first <= highest then
      chosen := chosen || 900 + first;
    elsif parts[2] = '#' and first <= highest and last between 1 and 5 then
      chosen := chosen || 100 * last + first;
    elsif parts[1] = '*' and parts[2] is null then
      chosen := chosen || array(select generate_series(lowest, highest, step));
    elsif parts[1] is distinct from '*' and coalesce(parts[2], '-') = '-'
      and first between lowest and highest and last between lowest and highest then
      if last < first then
        problem := format('"%s" runs backwards: write two ranges', left(term, 40));
      end if;
      -- A single value with a step goes on to the end of the field.
      chosen := chosen || array(select generate_series(
        first, case when first = last and parts[4] is not null then highest else last end, step));
    else
      problem := format('"%s" is not %s, nor a range, step or list of them', left(term, 40), allowed);
    end if;
    if problem is not null then
      chosen := null;
      return;
    end if;
  end loop;
  chosen := array(select distinct c from unnest(chosen) c order by c);
end $$;
revoke execute on function fn_cron_field(integer, text) from public;
grant execute on function fn_cron_field(integer, text) to authenticated, farmiq_service, farmiq_jobs;
