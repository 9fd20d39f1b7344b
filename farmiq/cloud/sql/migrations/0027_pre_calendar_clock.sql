-- What the calendar of cameras last saw of the clock: what fn_now() said, and by how much that had
-- jumped ahead of a clock that never jumps (0: it is believed). fn_calendar_now() puts it right.
create table calendar_clock (
  only_row boolean not null default true
    constraint calendar_clock_pkey primary key
    constraint calendar_clock_only_row check (only_row),
  looked_at timestamptz not null,
  ahead interval not null
);

alter table calendar_clock enable row level security;
alter table calendar_clock force row level security;
create policy calendar_clock_service on calendar_clock for all to farmiq_service
  using (true) with check (true);
create policy calendar_clock_read on calendar_clock for select using (true);
grant select on calendar_clock to public;
grant select, insert, update on calendar_clock to farmiq_service;

-- Days that a clock that was ahead opened before their time are removed again.
grant delete on site_device_sessions to farmiq_jobs;
grant delete on expected_wakes to farmiq_jobs;
