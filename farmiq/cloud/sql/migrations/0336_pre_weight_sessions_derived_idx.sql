create index concurrently if not exists weight_sessions_derived_idx on weight_sessions
  (tenant_id, farm_id, barn_id, start_at)
  where batch_derived and status = 'finalized' and final_weight_kg is not null
    and not clock_suspect;
