-- How often what was refused of cameras was tried again.
alter table camera_quarantine
  add column redriven_count integer not null default 0,
  add column last_redriven_at timestamptz;
