-- Which animal was weighed, where a station can tell (D-772): errors of models are then of animals
-- that were left out, not of days.
alter table weight_session_events add column animal_id text;
