-- By how many open alerts an edge and the cloud differ: the edge's last heartbeat against the episodes
-- of its alerts at that moment, both by the edge's clock. Null while its events wait for long, and for
-- an edge that sends no totals.
create or replace function fn_edge_alerts_missing(tenant text, edge text) returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when h.oldest_s <= 60 then abs(h.open_alerts - (
    select count(*) from public.alert_episodes e
    where e.tenant_id = h.tenant_id and e.edge_cluster_id = h.edge_cluster_id
      and e.source = 'edge' and e.state <> 'withdrawn' and e.opened_at <= h.sent_at
      and (coalesce(e.resolved_at, 'infinity'::timestamptz) > h.sent_at or e.is_open_at_edge)))
    end
  from public.edge_heartbeats h where h.tenant_id = tenant and h.edge_cluster_id = edge
$$;
revoke execute on function fn_edge_alerts_missing(text, text) from public;
grant execute on function fn_edge_alerts_missing(text, text) to authenticated, farmiq_service;
