-- The door's memory: kinds of refusals, sequence numbers, whose turn it is, when chores were done.

alter table quarantine
  add column kind text not null default 'format' constraint quarantine_kind_known
    check (kind in ('security', 'conflict', 'format', 'not_recorded', 'database', 'size')),
  -- The first reason up to its first value: what counts are grouped by.
  add column gist text not null default '',
  add column redriven_count int not null default 0,
  add column last_redriven_at timestamptz;
grant delete on quarantine to farmiq_edge;

-- For rows that are there already.
update quarantine set
  gist = trim(split_part(regexp_replace(left(reasons[1], 200), '[`''":0-9].*', ''), ' - at', 1)),
  kind = case
    when reasons[1] like 'EVENT_ID_CONFLICT%' then 'conflict'
    when array_to_string(reasons, ' ') ~ 'topic says (tenant_id|device_id|event_type)'
      then 'security'
    when reasons[1] like 'payload of %' or reasons[1] like 'topic longer%' then 'size'
    when reasons[1] like '%not recorded at this edge%' then 'not_recorded'
    when reasons[1] like 'the database refused it%' then 'database'
    else 'format'
  end;

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

-- What only one process may do at a time (C-102). `fence` grows with every new holder: whoever comes
-- back from the dead with an older one has lost it, even under the same name.
create table leases (
  name text constraint leases_pkey primary key,
  holder text not null,
  fence bigint not null default 1,
  taken_at timestamptz not null,
  expires_at timestamptz not null
);
grant select, insert, update on leases to farmiq_edge;

-- When a daily chore last went well, so that one missed while the machine was off is made up for.
create table chore_runs (
  chore text constraint chore_runs_pkey primary key,
  last_done_at timestamptz not null
);
grant select, insert, update on chore_runs to farmiq_edge;
