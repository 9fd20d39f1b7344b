-- A batch may have been placed without anybody knowing its age.
alter table batches alter column age_at_placing_days drop not null;
-- additive: running code names the column in every insert.
do $$
begin
  alter table batches alter column age_at_placing_days drop default;
end $$;
