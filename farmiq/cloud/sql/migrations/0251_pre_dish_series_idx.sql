create index concurrently if not exists petri_observations_dish_series_id_idx on petri_observations
  (dish_series_id, observed_at) where dish_series_id is not null;
