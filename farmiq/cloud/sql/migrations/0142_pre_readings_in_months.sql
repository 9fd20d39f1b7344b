-- additive: changes nothing; refuses a database whose readings are not in months.
do $$
begin
  if not exists (
    select from pg_partitioned_table p where p.partrelid = 'telemetry_readings'::regclass) then
    raise exception using
      message = 'this database is older than the first release: its readings are in one table',
      hint = 'Build a new database with farmiq migrate; edges send again what they still have '
        'with farmiq resync.';
  end if;
end $$;
