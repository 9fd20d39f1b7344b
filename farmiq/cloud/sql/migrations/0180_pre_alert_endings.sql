-- Why an episode is over if not because the values say so, and who ended it by hand.
alter table alert_episodes add column ended_reason text
  constraint alert_episodes_ended_reason_known check (ended_reason in (
    'person', 'rule', 'edge', 'moved', 'revoked', 'batch', 'camera', 'long'));
alter table alert_episodes add column ended_by text;
alter table alert_episodes add column ended_note text;
alter table alert_episodes add column is_open_at_edge boolean not null default false;
