-- Which sequence numbers of a device were taken, per boot (C-84); what is missing between them is a
-- gap. A union of ranges is the same in any order. Only the highest gaps of a boot are kept, the
-- numbers of the others are counted in `forgotten`.
create table device_seq (
  tenant_id text not null,
  device_id text not null,
  boot_id text not null,
  seen int8multirange not null,
  forgotten bigint not null default 0,
  first_at timestamptz not null,
  updated_at timestamptz not null,
  missing_since timestamptz,
  constraint device_seq_pkey primary key (tenant_id, device_id, boot_id)
) with (fillfactor = 70);
grant select, insert, update, delete on device_seq to farmiq_edge;
