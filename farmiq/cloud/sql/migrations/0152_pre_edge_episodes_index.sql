create index concurrently if not exists alert_episodes_edge_idx on alert_episodes
  (tenant_id, edge_cluster_id, coalesce(resolved_at, 'infinity'::timestamptz))
  where source = 'edge';
