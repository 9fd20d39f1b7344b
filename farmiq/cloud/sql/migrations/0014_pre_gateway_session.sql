-- The gateway's client id at the broker is a secret, kept with its lease. A gateway that ran before
-- goes on under the name that it had: its session may hold messages.
alter table leases
  add column client_id text,
  add column session_began_at timestamptz;

-- additive: fills the new columns alone, which no running code reads
do $$
begin
  update leases set client_id = name, session_began_at = taken_at;
end $$;
