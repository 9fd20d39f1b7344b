-- What the clock said when it was last believed: one that is far from it after a start is not.
create table believed_clock (
  only_row boolean not null default true
    constraint believed_clock_pkey primary key
    constraint believed_clock_only_row check (only_row),
  believed_at timestamptz not null
);
grant select, insert, update on believed_clock to farmiq_edge;
