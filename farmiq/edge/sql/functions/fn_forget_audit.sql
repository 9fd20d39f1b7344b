-- Deletes notes of the audit log older than so many days, oldest first, at most so many; returns how
-- many. The services may only add to the log: what is younger than 30 days nobody can delete here.
create or replace function fn_forget_audit(days double precision, most int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  gone int;
begin
  delete from public.audit_log where audit_id = any(array(
    select a.audit_id from public.audit_log a
    where a.at < public.fn_now() - greatest(days, 30) * interval '1 day'
    order by a.at limit most));
  get diagnostics gone = row_count;
  return gone;
end $$;
revoke execute on function fn_forget_audit(double precision, int) from public;
grant execute on function fn_forget_audit(double precision, int) to farmiq_edge;
