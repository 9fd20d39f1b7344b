"""The tests' farm itself: what other tests believe of it."""

from datetime import datetime, timedelta

from tests.sql.camera.farm import Farm


def test_the_clock_stands_where_it_was_put_and_goes_on(farm: Farm) -> None:
    there = datetime.fromisoformat("2026-03-29T00:59:59+00:00")
    farm.at(there)
    assert timedelta() <= farm.now() - there < timedelta(minutes=10)


def test_a_camera_stands_at_its_site_since_it_was_put_there(farm: Farm) -> None:
    site = farm.site("Europe/Berlin", early_wake_snap_seconds=60)
    device = farm.device(site, "30 6 * * *", slot_index=3)
    assert farm.rows("select site_id from device_assignments where device_id = %s", device) == [
        (site,)
    ]
    with farm.person() as ann:
        assert ann.execute("select slot_index, wake_schedule_cron from devices").fetchall() == [
            (3, "30 6 * * *")
        ]
