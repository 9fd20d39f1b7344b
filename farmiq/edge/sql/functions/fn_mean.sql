-- The mean of `count` values whose exact sum is `total`. It fails for no total: one beyond a double
-- is divided first, and one that a double can hardly tell from zero is zero.
create or replace function fn_mean(total numeric, count bigint) returns double precision
language sql immutable parallel safe
as $$
  select case
    when abs(total) < 1e-290 then 0
    when abs(total) < 1e308 then total::float8 / count
    else (total / count)::float8
  end
$$;
