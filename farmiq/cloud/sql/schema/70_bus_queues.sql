-- The queues of the bus as they were counted last. They serve all companies: only super admins see
-- them (fn_bus_queues).
create table bus_queues (
  queue text constraint bus_queues_pkey primary key,
  messages bigint not null,
  consumers bigint not null,
  max_messages bigint not null,
  counted_at timestamptz not null
);

alter table bus_queues enable row level security;
alter table bus_queues force row level security;
create policy bus_queues_service on bus_queues for all to farmiq_service
  using (true) with check (true);
create policy bus_queues_jobs on bus_queues for select to farmiq_jobs using (true);
grant select, insert, update, delete on bus_queues to farmiq_service;
grant select on bus_queues to farmiq_jobs;
