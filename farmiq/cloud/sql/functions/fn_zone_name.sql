-- The name by which `at time zone` means the zone of the IANA database that is asked for; raises if
-- there is none. PostgreSQL takes more than names of zones: abbreviations come first, so that CET
-- would be an hour without summer time, and FOO5 would be a zone of its own making.
create or replace function fn_zone_name(timezone text) returns text
language plpgsql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  name constant text := case fn_zone_name.timezone
    when 'CET' then 'Europe/Brussels' when 'MET' then 'Europe/Brussels'
    when 'EET' then 'Europe/Athens' when 'WET' then 'Europe/Lisbon'
    else fn_zone_name.timezone end;
  checked timestamptz;
begin
  if name ~ '^[A-Za-z_]+(/[A-Za-z_-]+)+$'
    or name ~ '^(Etc/)?GMT[+-]?0$' or name ~ '^Etc/GMT[+-][0-9]{1,2}$'
    or name in ('UTC', 'GMT', 'UCT', 'Zulu', 'Universal', 'Greenwich', 'EST', 'MST', 'HST', 'EST5EDT',
      'CST6CDT', 'MST7MDT', 'PST8PDT', 'Cuba', 'Egypt', 'Eire', 'Factory', 'GB', 'GB-Eire', 'Hongkong',
      'Iceland', 'Iran', 'Israel', 'Jamaica', 'Japan', 'Kwajalein', 'Libya', 'NZ', 'NZ-CHAT', 'Navajo',
      'PRC', 'Poland', 'Portugal', 'ROC', 'ROK', 'Singapore', 'Turkey', 'W-SU') then
    -- Raises invalid_parameter_value for a name that stands in no database.
    checked := timestamp '2000-01-01' at time zone name;
    return name;
  end if;
  raise exception using errcode = 'invalid_parameter_value',
    message = format('%s is no time zone: name one of the IANA database, such as Asia/Bangkok',
      coalesce('"' || left(fn_zone_name.timezone, 60) || '"', 'null'));
end $$;
revoke execute on function fn_zone_name(text) from public;
grant execute on function fn_zone_name(text) to authenticated, farmiq_service, farmiq_jobs;
