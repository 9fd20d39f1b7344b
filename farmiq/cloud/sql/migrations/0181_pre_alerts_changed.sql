-- Pages that show alerts are told of every change that a person sees.
create or replace function fn_alerts_changed() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_notify('alerts_changed', c.company_id::text)
  from public.companies c where c.tenant_id = new.tenant_id;
  return null;
end $$;
revoke execute on function fn_alerts_changed() from public;

create trigger alert_episodes_opened after insert on alert_episodes
  for each row execute function fn_alerts_changed();
create trigger alert_episodes_changed after update on alert_episodes
  for each row when (
    (old.state, old.severity, old.paged_at, old.held_by, old.opened_at, old.resolved_at)
    is distinct from
    (new.state, new.severity, new.paged_at, new.held_by, new.opened_at, new.resolved_at))
  execute function fn_alerts_changed();
create trigger alert_messages_changed after update on alert_messages
  for each row when (old.state is distinct from new.state) execute function fn_alerts_changed();
