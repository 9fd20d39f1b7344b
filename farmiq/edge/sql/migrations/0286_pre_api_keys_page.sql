-- The page of keys adds and revokes; a key that is there is never changed by it.
grant insert on api_keys to farmiq_edge;
grant update (revoked_at) on api_keys to farmiq_edge;
