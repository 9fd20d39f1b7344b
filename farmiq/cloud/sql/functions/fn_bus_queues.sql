-- The queues of the bus, for super admins: they serve all companies. No rows for anybody else.
create or replace function fn_bus_queues() returns table (
  queue text, messages bigint, consumers bigint, max_messages bigint, counted_at timestamptz)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select q.queue, q.messages, q.consumers, q.max_messages, q.counted_at
  from public.bus_queues q
  where exists (
    select from public.sign_ins s join public.users u on u.user_id = s.user_id
    where s.token_hash = sha256(convert_to(current_setting('farmiq.sign_in', true), 'UTF8'))
      and s.expires_at > public.fn_now() and u.is_super_admin)
  order by q.queue
$$;
grant create on schema public to farmiq_jobs;
alter function fn_bus_queues() owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_bus_queues() from public;
grant execute on function fn_bus_queues() to authenticated;
