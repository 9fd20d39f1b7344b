-- Deletes entries of the loss ledger older than so many days that the cloud has, oldest first, at most
-- so many; returns how many. The services may only add to it: nothing younger than 30 days goes.
create or replace function fn_forget_losses(days double precision, most int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  gone int;
begin
  delete from public.loss_ledger where loss_id = any(array(
    select l.loss_id from public.loss_ledger l
    where l.recorded_at < public.fn_now() - greatest(days, 30) * interval '1 day'
      and not public.fn_unsynced(l.loss_id)
    order by l.recorded_at limit most));
  get diagnostics gone = row_count;
  return gone;
end $$;
revoke execute on function fn_forget_losses(double precision, int) from public;
grant execute on function fn_forget_losses(double precision, int) to farmiq_edge;
