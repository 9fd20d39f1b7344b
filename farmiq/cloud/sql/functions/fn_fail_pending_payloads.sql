-- Gives up images of which nothing was heard for so long (C-68); how many. They may come after all.
create or replace function fn_fail_pending_payloads(older_than interval) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  wake record;
  failed integer := 0;
begin
  if fn_fail_pending_payloads.older_than is null
    or fn_fail_pending_payloads.older_than < interval '0' then
    raise exception 'say how old a pending wake must be to fail, such as 5 minutes'
      using errcode = 'invalid_parameter_value';
  end if;
  for wake in
    select p.image_id, p.payload_id
    from public.device_wake_payloads p
    join public.site_device_sessions s on s.session_id = p.site_device_session_id
    where p.payload_status = 'pending'
      and p.created_at < public.fn_now() - fn_fail_pending_payloads.older_than
      and public.fn_last_sign(p.image_id) < public.fn_now() - fn_fail_pending_payloads.older_than
    order by s.site_id, s.session_date, p.created_at  -- sessions in the order of the locker
  loop
    begin
      perform public.fn_image_failure_handler(image_id => wake.image_id, error_code => 'TIMEOUT',
        error_message => format('no more of it came for %s', fn_fail_pending_payloads.older_than));
      if exists (
        select from public.device_wake_payloads p
        where p.payload_id = wake.payload_id and p.payload_status = 'failed') then
        failed := failed + 1;
      end if;
    exception when others then
      -- One that cannot fail must not keep all others pending.
      raise warning 'payload % stays pending: %', wake.payload_id, sqlerrm;
    end;
  end loop;
  return failed;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_fail_pending_payloads(interval) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_fail_pending_payloads(interval) from public;
grant execute on function fn_fail_pending_payloads(interval) to farmiq_service;
