create index concurrently if not exists weight_sessions_batch_idx
  on weight_sessions (tenant_id, batch_id, start_at)
  where status = 'finalized' and final_weight_kg is not null and not clock_suspect;
create index concurrently if not exists weight_sessions_barn_idx
  on weight_sessions (tenant_id, farm_id, barn_id, start_at)
  where batch_id is null and status = 'finalized' and final_weight_kg is not null
    and not clock_suspect;
