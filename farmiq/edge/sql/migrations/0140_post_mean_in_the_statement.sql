-- Rollups compute the mean in their own statement (farm/rollups.py), which the cloud shares.
drop function if exists fn_mean(numeric, bigint);
