-- How far estimates by vision are from the scale, by day.
alter table batch_days add column estimated_count bigint not null default 0;
alter table batch_days add column vision_residual_pct double precision;
-- additive: every family that was allowed still is.
do $$
begin
  alter table analytics_pending drop constraint analytics_pending_family_known;
  alter table analytics_pending add constraint analytics_pending_family_known
    check (family in ('weighvision', 'feed', 'barn', 'telemetry', 'inference'));
end $$;
