-- The site to which a camera's wake at this instant belongs: where it stood then, before its first
-- place that one (C-73). Refused, for somebody to look at, if there is none or it is not in use.
create or replace function fn_wake_lineage(device_id uuid, at timestamptz) returns uuid
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  camera record;
  place record;
begin
  select d.device_name, d.is_active into camera
  from public.devices d where d.device_id = fn_wake_lineage.device_id;
  if not found then
    raise exception 'no camera %: register it', fn_wake_lineage.device_id
      using errcode = 'FQ001';
  elsif not camera.is_active then
    raise exception 'camera % (%) is not in use: activate it', camera.device_name,
      fn_wake_lineage.device_id using errcode = 'FQ002';
  end if;
  select a.site_id, a.ended_at < fn_wake_lineage.at as was_taken_away, s.site_name,
    s.is_active and g.is_active as in_use
  into place
  from public.device_assignments a
  join public.sites s on s.site_id = a.site_id
  join public.pilot_programs g on g.program_id = s.program_id
  where a.device_id = fn_wake_lineage.device_id
  order by a.assigned_at <= fn_wake_lineage.at desc,
    case when a.assigned_at <= fn_wake_lineage.at then a.assigned_at end desc, a.assigned_at
  limit 1;
  if not found or place.was_taken_away then
    raise exception 'camera % (%) stood at no site at %: assign it to one', camera.device_name,
      fn_wake_lineage.device_id, fn_wake_lineage.at using errcode = 'FQ002';
  elsif not place.in_use then
    raise exception 'camera % (%) stands at %, and that site or its program is not in use',
      camera.device_name, fn_wake_lineage.device_id, place.site_name using errcode = 'FQ002';
  end if;
  return place.site_id;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_wake_lineage(uuid, timestamptz) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_wake_lineage(uuid, timestamptz) from public;
