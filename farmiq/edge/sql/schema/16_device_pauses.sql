-- Devices that sent more than they may: until `until_at` the broker does not let them in. The row
-- stays: whoever floods again soon is paused for longer.
create table device_pauses (
  tenant_id text not null,
  device_id text not null,
  until_at timestamptz not null,
  in_a_row int not null constraint device_pauses_in_a_row_positive check (in_a_row > 0),
  constraint device_pauses_pkey primary key (tenant_id, device_id),
  constraint device_pauses_device_fkey foreign key (tenant_id, device_id)
    references devices (tenant_id, device_id)
);
grant select, insert, update on device_pauses to farmiq_edge;
