"""The wake of a camera, step by step: metadata, completion, failure, retry."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from farmiq.plumbing import ids
from tests.sql.camera import people
from tests.sql.camera.farm import Farm
from tests.sql.camera.verbs import URL, complete, fail, image, payload, retry

EIGHT = "2026-03-10T08:00:00+07:00"
FOUR = "2026-03-10T16:00:00+07:00"


@pytest.fixture
def device(farm: Farm) -> UUID:
    """A camera in Bangkok that wakes at 8 and 16; it is evening."""
    made = farm.device(farm.site())
    farm.at("2026-03-10T18:00:00+07:00")
    return made


@pytest.mark.req("FN-05", "DS-01", "DS-08", "XC-06")
def test_metadata_becomes_a_wake_with_its_whole_lineage(farm: Farm, device: UUID) -> None:
    wake = farm.wake(device, EIGHT, temperature=21.5, battery_voltage=3.9, wifi_rssi=-61)
    assert set(wake) == {"payload_id", "image_id", "session_id", "wake_index", "is_overage"}
    assert (wake["wake_index"], wake["is_overage"]) == (1, False)
    assert farm.rows(
        """
        select g.company_id = c.company_id, s.program_id = g.program_id, n.session_date::text,
          p.payload_status, p.image_status, i.status, i.image_name, i.original_capture_date::text,
          p.captured_at = i.captured_at, p.received_at, p.temperature, p.humidity
        from companies c
        join pilot_programs g on g.company_id = c.company_id
        join sites s on s.program_id = g.program_id
        join site_device_sessions n on n.site_id = s.site_id
        join device_wake_payloads p on p.site_device_session_id = n.session_id
          and (p.site_id, p.program_id, p.company_id) = (s.site_id, g.program_id, c.company_id)
        join device_images i on i.image_id = p.image_id and i.device_id = p.device_id
        where p.payload_id = %s
        """,
        wake["payload_id"],
    ) == [
        (True, True, "2026-03-10", "pending", "pending", "receiving", "IMG_001.jpg", "2026-03-10",
         True, None, 21.5, None)
    ]  # fmt: skip
    assert (
        farm.value(
            "select status from site_device_sessions where session_id = %s", wake["session_id"]
        )
        == "in_progress"
    )
    assert farm.value(
        "select battery_voltage, wifi_rssi, last_seen_at is not null from devices"
        " where device_id = %s", device,
    ) == (3.9, -61, True)  # fmt: skip
    assert farm.counters(wake["session_id"]) == (0, 0, 0)


@pytest.mark.req("FN-05")
def test_metadata_that_comes_again_makes_nothing_new(farm: Farm, device: UUID) -> None:
    first = farm.wake(device, EIGHT, temperature=21.5)
    assert farm.wake(device, EIGHT, temperature=99, total_chunks=7) == first
    assert payload(farm, first, "temperature, telemetry_data") == (21.5, {"temperature": 21.5})
    assert image(farm, first, "total_chunks") == 7
    complete(farm, first)
    assert farm.wake(device, EIGHT, total_chunks=9) == first
    assert image(farm, first, "status, total_chunks") == ("complete", 7)
    assert farm.value("select count(*) from device_wake_payloads") == 1


@pytest.mark.req("FN-06", "DS-13")
def test_a_complete_image_has_one_observation_and_counts_once(farm: Farm, device: UUID) -> None:
    wake = farm.wake(device, FOUR)
    answer = complete(farm, wake)
    assert set(answer) == {"observation_id", "payload_id", "session_id", "slot_index"}
    assert answer["payload_id"] == wake["payload_id"]
    assert (answer["session_id"], answer["slot_index"]) == (wake["session_id"], 2)
    assert complete(farm, wake, "s3://images/another.jpg") == answer
    assert image(
        farm, wake, "status, image_url, observation_id::text, received_at is not null,"
        " resent_received_at"
    ) == ("complete", URL, answer["observation_id"], True, None)  # fmt: skip
    assert payload(farm, wake, "payload_status, image_status, received_at is not null") == (
        "complete", "complete", True,
    )  # fmt: skip
    assert farm.rows("select is_device_generated, observed_at from petri_observations") == [
        (True, datetime.fromisoformat(FOUR))
    ]
    assert farm.counters(wake["session_id"]) == (1, 0, 0)


@pytest.mark.req("FN-06")
def test_images_completed_together_are_as_if_completed_one_by_one(farm: Farm, device: UUID) -> None:
    wakes = [farm.wake(device, f"2026-03-10T{hour:02}:00:00+07:00") for hour in (8, 16)]
    other = farm.wake(farm.device(farm.site(), "0 8 * * *"), EIGHT)
    fail(farm, wakes[0])
    images = [wake["image_id"] for wake in (*wakes, other)]
    urls = [f"s3://images/{number}.jpg" for number in range(3)]
    together = "select fn_complete_images(%s::uuid[], %s::text[])"
    with pytest.raises(psycopg.Error, match="no wake has an image") as refused:
        farm.value(together, [*images, str(ids.new())], [*urls, URL])
    assert refused.value.sqlstate == "FQ003"
    for _ in range(2):
        farm.value(together, images, urls)
        assert farm.counters(wakes[0]["session_id"]) == (2, 0, 0)
        assert farm.counters(other["session_id"]) == (1, 0, 0)
        assert farm.value("select count(*) from petri_observations") == len(images)
        assert [image(farm, wake, "image_url") for wake in (*wakes, other)] == urls
    assert image(farm, wakes[0], "resent_received_at = received_at")
    assert image(farm, wakes[1], "resent_received_at is null")
    assert farm.value("select count(*) from device_alerts where resolved_at is null") == 0


@pytest.mark.req("FN-06")
def test_the_slot_of_a_camera_goes_before_the_window(farm: Farm) -> None:
    slotted = farm.device(farm.site(), slot_index=7)
    assert complete(farm, farm.wake(slotted, EIGHT))["slot_index"] == 7
    unscheduled = farm.device(farm.site(), None)
    wake = farm.wake(unscheduled, EIGHT)
    assert (wake["wake_index"], wake["is_overage"]) == (None, True)
    assert complete(farm, wake)["slot_index"] is None


@pytest.mark.req("FN-07")
def test_a_failure_counts_once_and_alerts_once(farm: Farm, device: UUID) -> None:
    wake = farm.wake(device, EIGHT)
    told = {"device_id": str(device), "error_code": "TIMEOUT"}
    assert fail(farm, wake) == {**told, "alert_created": True}
    assert fail(farm, wake) == {**told, "alert_created": False}
    assert image(farm, wake, "status, error_code, error_message") == (
        "failed", "TIMEOUT", "no chunk for five minutes",
    )  # fmt: skip
    assert farm.counters(wake["session_id"]) == (0, 1, 0)
    other = farm.wake(device, FOUR)
    assert fail(farm, other)["alert_created"] is False
    assert farm.counters(wake["session_id"]) == (0, 2, 0)
    assert farm.rows("select alert_type, device_id, alert_date::text from device_alerts") == [
        ("image_transmission_failed", device, "2026-03-10")
    ]


@pytest.mark.req("FN-07")
def test_a_resolved_alert_is_not_opened_by_the_same_failure_told_again(
    farm: Farm, device: UUID
) -> None:
    wake = farm.wake(device, EIGHT)
    fail(farm, wake)
    farm.service.execute("update device_alerts set resolved_at = fn_now()")
    assert fail(farm, wake)["alert_created"] is False
    retry(farm, device, None)
    assert fail(farm, wake, "CHUNKS_MISSING")["alert_created"] is True
    assert image(farm, wake, "status, error_code") == ("failed", "CHUNKS_MISSING")
    assert farm.counters(wake["session_id"]) == (0, 1, 0)


@pytest.mark.req("FN-06", "FN-07")
def test_the_alert_tells_of_an_image_that_is_missing_or_ends(farm: Farm, device: UUID) -> None:
    morning, afternoon = farm.wake(device, EIGHT), farm.wake(device, FOUR, "IMG_002.jpg")
    fail(farm, morning)
    fail(farm, afternoon)
    alert = "select message, image_id::text, resolved_at is null from device_alerts"
    complete(farm, morning)
    why = "IMG_002.jpg did not arrive: no chunk for five minutes"
    assert farm.rows(alert) == [(why, afternoon["image_id"], True)]
    complete(farm, afternoon)
    assert farm.rows(alert) == [(why, afternoon["image_id"], False)]


@pytest.mark.req("FN-06", "FN-07")
def test_the_alert_of_a_camera_that_was_moved_tells_of_what_is_missing_elsewhere(
    farm: Farm, device: UUID
) -> None:
    """One alert for the camera's day, though it stood at two sites."""
    farm.at("2026-03-10T10:00:00+07:00")
    morning = farm.wake(device, EIGHT)
    fail(farm, morning)
    there = farm.site()
    farm.owner.execute("update devices set site_id = %s where device_id = %s", (there, device))
    farm.at("2026-03-10T18:00:00+07:00")
    afternoon = farm.wake(device, FOUR, "IMG_002.jpg")
    assert afternoon["session_id"] != morning["session_id"]
    assert fail(farm, afternoon)["alert_created"] is False
    alert = "select image_id::text, resolved_at is null from device_alerts"
    complete(farm, morning)
    assert farm.rows(alert) == [(afternoon["image_id"], True)]
    complete(farm, afternoon)
    assert farm.rows(alert) == [(afternoon["image_id"], False)]


def test_a_failure_after_completion_changes_nothing(farm: Farm, device: UUID) -> None:
    wake = farm.wake(device, EIGHT)
    complete(farm, wake)
    assert fail(farm, wake)["alert_created"] is False
    assert image(farm, wake, "status, error_code") == ("complete", None)
    assert farm.counters(wake["session_id"]) == (1, 0, 0)


def test_a_failed_image_that_completes_says_that_it_came_again(farm: Farm, device: UUID) -> None:
    wake = farm.wake(device, EIGHT)
    fail(farm, wake)
    complete(farm, wake)
    assert image(farm, wake, "status, resent_received_at = received_at") == ("complete", True)
    assert payload(farm, wake, "payload_status, resent_received_at = received_at") == (
        "complete", True,
    )  # fmt: skip
    assert farm.counters(wake["session_id"]) == (1, 0, 0)


@pytest.mark.req("FN-08", "FN-09", "FN-10", "FN-13", "DS-09", "DS-10", "XC-06")
def test_a_retry_three_days_later_goes_into_its_locked_day(farm: Farm, device: UUID) -> None:
    wake = farm.wake(device, EIGHT, temperature=21.5, battery_voltage=3.9)
    fail(farm, wake)
    farm.owner.execute("update site_device_sessions set status = 'locked', locked_at = fn_now()")
    farm.at("2026-03-13T12:00:00+07:00")
    trend = "select date::text, avg_temp, wakes from fn_device_trend(%s)"
    before = farm.rows(trend, device)
    answer = retry(farm, device, URL)
    assert farm.rows(trend, device) == before == [("2026-03-10", Decimal("21.50"), 1)]
    assert answer == {
        "found": True,
        "was_failed": True,
        "is_complete": True,
        "retry_count": 1,
        "original_captured_at": "2026-03-10T01:00:00+00:00",
    }
    assert payload(farm, wake, "captured_at, temperature, telemetry_data, site_device_session_id") \
        == (datetime.fromisoformat(EIGHT), 21.5, {"temperature": 21.5, "battery_voltage": 3.9},
            UUID(wake["session_id"]))  # fmt: skip
    assert image(farm, wake, "resent_received_at::date::text, retry_count, image_url") == (
        "2026-03-13", 1, URL,
    )  # fmt: skip
    assert farm.counters(wake["session_id"]) == (1, 0, 0)
    assert farm.rows("select status, late_updates from site_device_sessions") == [("locked", 1)]
    assert farm.value("select count(*) from petri_observations") == 1
    again = retry(farm, device, "s3://images/another.jpg")
    assert again == {**answer, "was_failed": False}
    assert image(farm, wake, "image_url") == URL
    assert farm.rows("select status, late_updates from site_device_sessions") == [("locked", 1)]


@pytest.mark.req("FN-08")
def test_a_retry_without_an_address_only_asks(farm: Farm, device: UUID) -> None:
    wake = farm.wake(device, EIGHT)
    fail(farm, wake)
    asked = retry(farm, device, None)
    assert (asked["was_failed"], asked["is_complete"], asked["retry_count"]) == (True, False, 1)
    assert retry(farm, device, "")["retry_count"] == 2
    assert image(farm, wake, "status, resend_requested_at is not null, resent_received_at") == (
        "failed", True, None,
    )  # fmt: skip
    assert farm.counters(wake["session_id"]) == (0, 1, 0)
    came = retry(farm, device, URL)
    assert (came["was_failed"], came["is_complete"], came["retry_count"]) == (True, True, 3)
    assert retry(farm, device, None) == {**came, "was_failed": False}


@pytest.mark.req("FN-08")
def test_an_image_that_nobody_announced_is_not_found(farm: Farm, device: UUID) -> None:
    unknown = {
        "found": False,
        "was_failed": False,
        "is_complete": False,
        "retry_count": 0,
        "original_captured_at": None,
    }
    farm.wake(device, EIGHT)
    assert retry(farm, device, URL, "IMG_002.jpg") == unknown
    assert retry(farm, ids.new(), URL) == unknown


@pytest.mark.req("FN-13")
def test_of_a_name_the_newest_that_is_not_complete_is_tried_again(farm: Farm, device: UUID) -> None:
    old, newer, newest = (farm.wake(device, f"2026-03-0{day}T08:00:00+07:00") for day in (7, 8, 9))
    fail(farm, old)
    complete(farm, newest)
    assert retry(farm, device, URL)["original_captured_at"] == "2026-03-08T01:00:00+00:00"
    assert image(farm, newer, "status") == "complete"
    assert retry(farm, device, URL)["original_captured_at"] == "2026-03-07T01:00:00+00:00"
    assert retry(farm, device, URL)["original_captured_at"] == "2026-03-09T01:00:00+00:00"


def test_people_ask_for_exactly_one_image_and_only_their_own(farm: Farm, device: UUID) -> None:
    old, new = farm.wake(device, EIGHT), farm.wake(device, FOUR)
    other = Farm.make(farm.database, farm.owner, farm.service, name="other")
    ask = "select fn_request_resend(image_id => %s)"
    with farm.person() as ann:
        row = ann.execute(ask, (old["image_id"],)).fetchone()
        assert row is not None
        assert row[0]["retry_count"] == 1
    assert image(farm, old, "resend_requested_at is not null") is True
    assert image(farm, new, "resend_requested_at") is None
    refused = []
    for number in (old["image_id"], str(ids.new())):
        with (
            other.person() as bea,
            pytest.raises(psycopg.errors.NoDataFound) as raised,
        ):
            bea.execute(ask, (number,))
        refused.append(str(raised.value).replace(number, "…"))
    assert refused[0] == refused[1]


@pytest.mark.parametrize(
    ("captured_at", "index", "reason"),
    [
        ("07:00:00", 1, None),
        ("06:59:59", 1, "off_schedule"),
        ("08:59:59", 1, None),
        ("09:00:00", 1, None),
        ("09:00:01", 1, "off_schedule"),
        ("12:00:00", 1, "off_schedule"),
        ("12:00:01", 2, "off_schedule"),
        ("00:00:00", 1, "off_schedule"),
        ("23:59:59", 2, "off_schedule"),
    ],
)
@pytest.mark.req("DB2-06")
def test_a_wake_is_the_nearest_expected_one_within_the_hour(
    farm: Farm, device: UUID, captured_at: str, index: int, reason: str | None
) -> None:
    farm.at("2026-03-11T00:00:00+07:00")
    wake = farm.wake(device, f"2026-03-10T{captured_at}+07:00")
    assert (wake["wake_index"], wake["is_overage"]) == (index, reason is not None)
    assert payload(farm, wake, "overage_reason") == reason
    assert farm.counters(wake["session_id"]) == (0, 0, int(reason is not None))
    assert (
        farm.value(
            "select (wake_index, is_overage)::text from fn_infer_wake_window_index("
            "captured_at => %s, cron_expression => '0 8,16 * * *', timezone => 'Asia/Bangkok')",
            f"2026-03-10T{captured_at}+07:00",
        )
        == f"({index},{'t' if reason else 'f'})"
    )


@pytest.mark.req("DS-02")
def test_a_window_is_taken_once_also_by_a_wake_that_failed(farm: Farm, device: UUID) -> None:
    first = farm.wake(device, EIGHT, "a.jpg")
    fail(farm, first)
    second = farm.wake(device, "2026-03-10T08:00:01+07:00", "b.jpg")
    assert (second["wake_index"], second["is_overage"]) == (1, True)
    assert payload(farm, second, "overage_reason") == "bucket_taken"
    neighbour = farm.device(farm.value("select site_id from devices where device_id = %s", device))
    assert farm.wake(neighbour, EIGHT)["session_id"] == first["session_id"]
    assert farm.counters(first["session_id"]) == (0, 1, 1 + 1)


@pytest.mark.req("DB2-06", "DB2-03")
def test_five_hundred_wakes_of_one_day_are_all_kept(farm: Farm, device: UUID) -> None:
    start = datetime.fromisoformat("2026-03-10T10:00:00+07:00")
    wakes = [farm.wake(device, start + timedelta(seconds=n), f"IMG_{n}.jpg") for n in range(500)]
    assert {wake["is_overage"] for wake in wakes} == {True}
    for wake in wakes[:5]:
        complete(farm, wake)
    assert farm.counters(wakes[0]["session_id"]) == (5, 0, 500)


@pytest.mark.parametrize(
    ("said", "columns"),
    [
        ({"temperature": 21, "humidity": "45.5"}, (21, 45.5)),
        ({"temperature": "-1.5e1", "humidity": True}, (-15, None)),
        ({"temperature": "warm", "humidity": None}, (None, None)),
        ({"temperature": "NaN", "humidity": "Infinity"}, (None, None)),
        ({"temperature": [1], "humidity": {"value": 1}}, (None, None)),
        ({"temperature": "1e999", "humidity": ""}, (None, None)),
        ({"temperature": "٣", "humidity": " 1 "}, (None, None)),
    ],
)
@pytest.mark.req("DS-07", "DS-09")
def test_readings_that_are_numbers_stand_in_columns(
    farm: Farm, device: UUID, said: dict[str, Any], columns: tuple[Any, ...]
) -> None:
    wake = farm.wake(device, EIGHT, **said)
    assert payload(farm, wake, "temperature, humidity") == columns
    assert payload(farm, wake, "telemetry_data") == said


@pytest.mark.parametrize("said", ["1e400", "1e-400", "-1e400", "[]", "7", "null", '"text"'])
def test_odd_telemetry_is_kept_and_refused_by_nobody(farm: Farm, device: UUID, said: str) -> None:
    odd = f'{{"temperature": {said}, "image_size": {said}, "total_chunks": {said}}}'
    for number, telemetry in enumerate((odd, said)):
        for _ in range(2):
            for captured_at in (EIGHT, "2099-01-01T00:00:00Z"):
                farm.service.execute(
                    "select fn_wake_ingestion_handler(%s, %s, %s, %s::jsonb)",
                    (device, captured_at, f"{number}.jpg", telemetry),
                )
    assert farm.value("select count(*) from device_wake_payloads") == 4


def test_sizes_and_chunks_go_to_the_image(farm: Farm, device: UUID) -> None:
    wake = farm.wake(device, EIGHT, image_size=48_123, total_chunks_count="47")
    assert image(farm, wake, "image_size, total_chunks") == (48_123, 47)
    odd = farm.wake(device, FOUR, image_size=-1, total_chunks=1.5)
    assert image(farm, odd, "image_size, total_chunks") == (None, None)


def test_no_telemetry_is_an_empty_one(farm: Farm, device: UUID) -> None:
    wake = farm.call(
        "fn_wake_ingestion_handler",
        device_id=device, captured_at=EIGHT, image_name="a.jpg", telemetry_data=None,
    )  # fmt: skip
    assert payload(farm, wake, "telemetry_data") == {}


def test_an_older_image_says_nothing_about_the_battery(farm: Farm, device: UUID) -> None:
    battery = "select battery_voltage, wifi_rssi from devices where device_id = %s"
    farm.wake(device, FOUR, battery_voltage=3.7, wifi_rssi=-70)
    farm.wake(device, EIGHT, battery_voltage=4.1, wifi_rssi=-50, pending=True)
    assert farm.value(battery, device) == (3.7, -70)
    farm.wake(device, "2026-03-10T16:00:01+07:00", battery_voltage=3.6)
    assert farm.value(battery, device) == (3.6, -70)


@pytest.mark.parametrize(
    ("function", "arguments", "state"),
    [
        ("fn_image_completion_handler", {"image_id": ids.new(), "image_url": URL}, "FQ003"),
        ("fn_image_completion_handler", {"image_id": None, "image_url": URL}, "FQ003"),
        ("fn_image_completion_handler", {"image_id": ids.new(), "image_url": ""}, "22023"),
        (
            "fn_image_failure_handler",
            {"image_id": ids.new(), "error_code": "X", "error_message": "x"},
            "FQ003",
        ),
        (
            "fn_wake_ingestion_handler",
            {
                "device_id": ids.new(),
                "captured_at": EIGHT,
                "image_name": "a.jpg",
                "telemetry_data": Jsonb({}),
            },
            "FQ001",
        ),
        (
            "fn_wake_ingestion_handler",
            {
                "device_id": ids.new(),
                "captured_at": EIGHT,
                "image_name": "",
                "telemetry_data": Jsonb({}),
            },
            "22023",
        ),
    ],
)
def test_unknown_image_or_camera_is_rejected_with_its_own_sqlstate(
    farm: Farm, function: str, arguments: dict[str, Any], state: str
) -> None:
    with pytest.raises(psycopg.Error) as raised:
        farm.call(function, **arguments)
    assert raised.value.sqlstate == state


def test_image_name_that_is_too_long_is_rejected(farm: Farm, device: UUID) -> None:
    assert farm.wake(device, farm.now(), "é" * 255)["payload_id"]
    assert retry(farm, device, None, "é" * 255)["found"]
    refusal = pytest.raises(psycopg.errors.InvalidParameterValue, match="at most 255 characters")
    with refusal:
        farm.wake(device, farm.now(), "x" * 256)
    with refusal:
        retry(farm, device, None, "x" * 256)


@pytest.mark.req("DB2-20")
@pytest.mark.parametrize("role", ["viewer", "operator", "technician", "admin"])
def test_viewer_cannot_request_an_image_again(farm: Farm, role: str) -> None:
    wake = farm.wake(farm.device(farm.site()), EIGHT)
    ask = "select fn_request_resend(image_id => %s)"
    with people.person(farm, role) as somebody:
        if role == "viewer":
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="operators"):
                somebody.execute(ask, (wake["image_id"],))
        else:
            somebody.execute(ask, (wake["image_id"],))
    assert image(farm, wake, "retry_count") == (role != "viewer")
    ((noted,),) = farm.owner.execute(
        "select count(*) from master_data_actions where action = 'resend' "
        "and detail ->> 'image_id' = %s",
        (str(wake["image_id"]),),
    ).fetchall()
    assert noted == (role != "viewer")
