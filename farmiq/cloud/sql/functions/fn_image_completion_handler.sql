-- All of an image is stored at image_url: its wake is complete, and there is an observation of it
-- (FN-06). One that had failed, or was asked for again, also says when it came after all. Of an
-- image that is complete already nothing changes, not even its address; if somebody wrote it so without
-- its observation, that follows. The alert that it did not arrive is over, or tells of another image
-- of that camera and day that did not.
create or replace function fn_image_completion_handler(image_id uuid, image_url text)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  came timestamptz := public.fn_now();
  came_again timestamptz;
  observed uuid := public.fn_uuid_v7();
begin
  if coalesce(fn_image_completion_handler.image_url, '') = '' then
    raise exception 'image % is complete only where it is stored: say its image_url',
      fn_image_completion_handler.image_id using errcode = 'invalid_parameter_value';
  end if;
  perform public.fn_lock_wake(fn_image_completion_handler.image_id);
  select case when i.status = 'failed' or i.resend_requested_at is not null then came end
  into came_again
  from public.device_images i
  where i.image_id = fn_image_completion_handler.image_id and (i.status <> 'complete' or i.observation_id is null);
  if found then
    update public.device_wake_payloads p
    set payload_status = 'complete', received_at = came, resent_received_at = came_again
    where p.image_id = fn_image_completion_handler.image_id and p.payload_status <> 'complete';
    insert into public.petri_observations (observation_id, company_id, program_id, site_id,
      site_device_session_id, device_id, payload_id, image_id, slot_index, is_device_generated,
      observed_at, created_at)
    select observed, p.company_id, p.program_id, p.site_id, p.site_device_session_id, p.device_id,
      p.payload_id, p.image_id, coalesce(d.slot_index, p.wake_window_index), true,
      p.captured_at, came
    from public.device_wake_payloads p join public.devices d on d.device_id = p.device_id
    where p.image_id = fn_image_completion_handler.image_id
    on conflict on constraint petri_observations_image_key do nothing;
    update public.device_images i
    set status = 'complete', observation_id = o.observation_id,
      image_url = case i.status when 'complete' then i.image_url
        else fn_image_completion_handler.image_url end,
      received_at = case i.status when 'complete' then i.received_at else came end,
      resent_received_at = case i.status when 'complete' then i.resent_received_at
        else came_again end
    from public.petri_observations o
    where i.image_id = fn_image_completion_handler.image_id and o.image_id = i.image_id;
    -- Few images have such an alert, and without one this need not even be planned.
    if exists (
      select from public.device_alerts a
      where a.image_id = fn_image_completion_handler.image_id
        and a.alert_type = 'image_transmission_failed' and a.resolved_at is null) then
      with missing as (
        select i.image_id, i.image_name, i.error_code, i.error_message
        from public.device_wake_payloads mine
        join public.site_device_sessions d on d.session_id = mine.site_device_session_id
        -- A camera that was moved has that day at two sites.
        join public.site_device_sessions s on s.company_id = d.company_id
          and s.session_date = d.session_date
        join public.device_wake_payloads p on p.device_id = mine.device_id
          and p.site_device_session_id = s.session_id and p.payload_status = 'failed'
        join public.device_images i on i.image_id = p.image_id
        where mine.image_id = fn_image_completion_handler.image_id
        order by i.captured_at desc, i.image_id desc
        limit 1
      )
      update public.device_alerts a
      set resolved_at = case when m.image_id is null then came end,
        image_id = coalesce(m.image_id, a.image_id),
        message = case when m.image_id is null then a.message
          else format('%s did not arrive: %s', m.image_name,
            coalesce(m.error_message, m.error_code, 'no reason given')) end,
        details = case when m.image_id is null then a.details
          else jsonb_build_object('image_name', m.image_name, 'error_code', m.error_code) end
      from public.device_images i left join missing m on true
      where i.image_id = fn_image_completion_handler.image_id and a.company_id = i.company_id
        and a.device_id = i.device_id and a.image_id = i.image_id
        and a.alert_type = 'image_transmission_failed' and a.resolved_at is null;
    end if;
  end if;
  return (
    select jsonb_build_object('observation_id', o.observation_id, 'payload_id', o.payload_id,
      'session_id', o.site_device_session_id, 'slot_index', o.slot_index)
    from public.petri_observations o
    where o.image_id = fn_image_completion_handler.image_id);
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_image_completion_handler(uuid, text) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_image_completion_handler(uuid, text) from public;
grant execute on function fn_image_completion_handler(uuid, text) to farmiq_service;
