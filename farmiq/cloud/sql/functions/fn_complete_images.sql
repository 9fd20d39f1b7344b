-- All of these images are stored, each at its image_url: their wakes are complete, and there is an
-- observation of each (FN-06). One that had failed, or was asked for again, also says when it came
-- after all. Of an image that is complete already nothing changes, not even its address; if somebody
-- wrote it so without its observation, that follows. An alert that one of them did not arrive is over,
-- or tells of another image of that camera and day that did not.
create or replace function fn_complete_images(image_ids uuid[], image_urls text[])
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  came timestamptz := public.fn_now();
  unknown record;
begin
  select n.image_id into unknown from unnest(image_ids) n(image_id)
  where not exists (
    select from public.device_wake_payloads p where p.image_id = n.image_id)
  limit 1;
  if found then
    raise exception 'no wake has an image %: send its metadata first', unknown.image_id
      using errcode = 'FQ003';
  end if;
  -- As in fn_lock_wake: sessions, then images.
  perform from public.site_device_sessions s
  where s.session_id in (
    select p.site_device_session_id from public.device_wake_payloads p
    where p.image_id = any (image_ids))
  order by s.session_id for no key update;
  perform from public.device_images i where i.image_id = any (image_ids)
  order by i.image_id for no key update;
  update public.device_wake_payloads p
  set payload_status = 'complete', received_at = came,
    resent_received_at = case when i.status = 'failed' or i.resend_requested_at is not null
      then came end
  from public.device_images i
  where i.image_id = any (image_ids) and (i.status <> 'complete' or i.observation_id is null)
    and p.image_id = i.image_id and p.payload_status <> 'complete';
  insert into public.petri_observations (observation_id, company_id, program_id, site_id,
    site_device_session_id, device_id, payload_id, image_id, slot_index, is_device_generated,
    observed_at, created_at)
  select public.fn_uuid_v7(), p.company_id, p.program_id, p.site_id, p.site_device_session_id,
    p.device_id, p.payload_id, p.image_id, coalesce(d.slot_index, p.wake_window_index), true,
    p.captured_at, came
  from public.device_images i
  join public.device_wake_payloads p on p.image_id = i.image_id
  join public.devices d on d.device_id = p.device_id
  where i.image_id = any (image_ids) and i.observation_id is null
  on conflict on constraint petri_observations_image_key do nothing;
  update public.device_images i
  set status = 'complete', observation_id = o.observation_id,
    image_url = case i.status when 'complete' then i.image_url else n.image_url end,
    received_at = case i.status when 'complete' then i.received_at else came end,
    resent_received_at = case when i.status = 'complete' then i.resent_received_at
      when i.status = 'failed' or i.resend_requested_at is not null then came end
  from unnest(image_ids, image_urls) n(image_id, image_url)
  join public.petri_observations o on o.image_id = n.image_id
  where i.image_id = n.image_id and (i.status <> 'complete' or i.observation_id is null);
  -- Few images have such an alert, and without one this need not even be planned.
  if exists (
    select from public.device_images i
    join public.device_alerts a on a.company_id = i.company_id and a.device_id = i.device_id
    where i.image_id = any (image_ids) and a.image_id = i.image_id
      and a.alert_type = 'image_transmission_failed' and a.resolved_at is null) then
    update public.device_alerts a
    set resolved_at = case when m.image_id is null then came end,
      image_id = coalesce(m.image_id, a.image_id),
      message = case when m.image_id is null then a.message
        else format('%s did not arrive: %s', m.image_name,
          coalesce(m.error_message, m.error_code, 'no reason given')) end,
      details = case when m.image_id is null then a.details
        else jsonb_build_object('image_name', m.image_name, 'error_code', m.error_code) end
    from unnest(image_ids) n(came_id)
    left join lateral (
      select i.image_id, i.image_name, i.error_code, i.error_message
      from public.device_wake_payloads mine
      join public.site_device_sessions d on d.session_id = mine.site_device_session_id
      -- A camera that was moved has that day at two sites.
      join public.site_device_sessions s on s.company_id = d.company_id
        and s.session_date = d.session_date
      join public.device_wake_payloads p on p.device_id = mine.device_id
        and p.site_device_session_id = s.session_id and p.payload_status = 'failed'
      join public.device_images i on i.image_id = p.image_id
      where mine.image_id = n.came_id
      order by i.captured_at desc, i.image_id desc
      limit 1) m on true
    where a.image_id = n.came_id and a.alert_type = 'image_transmission_failed'
      and a.resolved_at is null;
  end if;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_complete_images(uuid[], text[]) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_complete_images(uuid[], text[]) from public;
grant execute on function fn_complete_images(uuid[], text[]) to farmiq_service;
