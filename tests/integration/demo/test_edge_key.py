"""The demo's sign-in at the edge's console."""

import psycopg

from farmiq.edge import api_keys, pins
from farmiq.lab.demo import provision
from farmiq.lab.demo.provision import Site
from tests.conftest import Database


def test_sign_in_at_the_edge_stays_when_the_demo_starts_again(edge_db: Database) -> None:
    pin, key = provision.edge_sign_in(None)
    known = Site({}, "", "", pin, key)
    for _ in range(2):
        assert provision.edge_sign_in(known) == (pin, key)
        provision.add_edge_key(edge_db.admin_url, pin, key)

    with psycopg.connect(edge_db.admin_url) as owner:
        rows = owner.execute(
            "select name, key_sha256, pin_bcrypt, tenant_id from api_keys"
        ).fetchall()
    ((name, key_sha256, pin_bcrypt, tenant_id),) = rows
    assert (name, tenant_id) == (provision.OPERATOR, provision.TENANT_ID)
    assert bytes(key_sha256) == api_keys.digest(key)
    assert pins.matches(pin_bcrypt, pin)
