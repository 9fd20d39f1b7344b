"""What the pages about sites say."""

import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.schedules import view as schedules
from farmiq.cloud.console.schedules.view import Change
from farmiq.cloud.console.sites import day as site_day
from farmiq.cloud.console.sites import strips
from farmiq.cloud.console.sites import view as sites
from farmiq.cloud.console.sites.day import SiteDayQuery, WakeImage
from farmiq.cloud.console.sites.strips import Camera, Cell, State, Stay, Wake
from farmiq.cloud.console.sites.view import Day, Site
from farmiq.ui import look

BANGKOK, BERLIN = ZoneInfo("Asia/Bangkok"), ZoneInfo("Europe/Berlin")
TODAY = date(2025, 1, 15)
NOW = datetime(2025, 1, 15, 14, 0, tzinfo=BANGKOK).astimezone(UTC)
COMPANY = Company(
    company_id=UUID(int=1), name="One", tenant_id="t-1", timezone="Asia/Bangkok", email="a@b.c"
)
SITE = Site(
    site_id=UUID(int=2),
    site_name="River House",
    timezone="Asia/Bangkok",
    is_active=True,
    program_name="Trial",
    today=TODAY,
    zone_today="Asia/Bangkok",
    cameras=1,
    last_seen_at=NOW,
)


def camera(**changes: Any) -> Camera:
    return Camera(
        **{
            "device_id": UUID(int=3),
            "device_name": "Device-002",
            "wake_schedule_cron": "0 */4 * * *",
            "is_active": True,
            "is_here": True,
            "here_since": NOW - timedelta(days=90),
            "firmware": "1",
            "last_seen_at": NOW - timedelta(minutes=5),
            "battery_voltage": 3.9,
            "wifi_rssi": -60.0,
            "pending_count": None,
            "missed": 0,
            **changes,
        }
    )


def wake(back_h: float, status: str | None = None, **changes: Any) -> Wake:
    """Expected so many hours ago; with a status it came."""
    at = NOW - timedelta(hours=back_h)
    return Wake(
        **{
            "session_id": UUID(int=4),
            "device_id": UUID(int=3),
            "at": at,
            "expected_at": at,
            "image_id": UUID(int=int(1000 + back_h * 60)) if status else None,
            "status": status,
            "received_at": at + timedelta(seconds=9) if status == "complete" else None,
            "overage_reason": None,
            "clock_suspect": False,
            **changes,
        }
    )


def day(at: date = TODAY, **changes: Any) -> Day:
    return Day(
        **{
            "session_id": UUID(int=4),
            "site_id": SITE.site_id,
            "session_date": at,
            "timezone": "Asia/Bangkok",
            "expected": 6,
            "completed": 5,
            "failed": 1,
            "extra": 0,
            "status": "in_progress",
            "opened_at": NOW - timedelta(hours=14),
            "config_changed": False,
            "late_updates": 0,
            "locked_at": None,
            **changes,
        }
    )


def view(*wakes: Wake, **changes: Any) -> site_day.View:
    return site_day.view(
        COMPANY,
        SITE,
        **{
            "day": day(),
            "wakes": wakes,
            "images": {},
            "cameras": [camera()],
            "changes": [],
            "alerts": [],
            "query": SiteDayQuery(),
            "now": NOW,
            **changes,
        },
    )


@pytest.mark.parametrize(
    ("found", "of", "expected"),
    [
        (wake(3, "complete"), camera(), State.RECEIVED),
        (wake(3, "pending"), camera(), State.RECEIVING),
        (wake(3, "failed"), camera(), State.FAILED),
        (wake(-1), camera(), State.DUE),
        (wake(0.1), camera(), State.DUE),
        (wake(0.2), camera(), State.OVERDUE),
        (wake(3), camera(), State.OVERDUE),
        (wake(3), camera(last_seen_at=None), State.OVERDUE),
        (wake(3), None, State.OVERDUE),
        (wake(3, required=False), camera(pending_count=0), State.NOT_REQUIRED),
        (wake(-1, required=False), camera(), State.NOT_REQUIRED),
        (wake(3, "complete", required=False), camera(), State.RECEIVED),
        # Lost needs a witness: the camera itself, after the window closed, with nothing on it.
        (wake(3), camera(pending_count=2), State.OVERDUE),
        (wake(3), camera(pending_count=0), State.LOST),
        (wake(3), camera(pending_count=0, last_seen_at=NOW - timedelta(hours=2.5)), State.OVERDUE),
        (wake(0.9), camera(pending_count=0), State.OVERDUE),
    ],
)
def test_overdue_wake_is_lost_only_if_the_camera_holds_no_image(
    found: Wake, of: Camera | None, expected: State
) -> None:
    assert strips.state(found, of, now=NOW) is expected


def test_a_cell_per_expected_wake_and_a_count_of_those_cells() -> None:
    found = strips.strip(
        [wake(-2), wake(6, "complete"), wake(4, "failed"), wake(5, expected_at=None)],
        {UUID(int=3): camera()},
        now=NOW,
        zone=BANGKOK,
    )
    assert [cell.title for cell in found.cells] == [
        "08:00 Device-002: received", "10:00 Device-002: failed", "16:00 Device-002: due later",
    ]  # fmt: skip
    assert found.says == "1 received, 1 failed, 1 due later"
    assert (found.problems, found.extra) == (1, 1)


def test_what_came_late_is_marked() -> None:
    late = wake(6, "complete", received_at=NOW)
    assert strips.arrived_late(late)
    assert not strips.arrived_late(wake(6, "complete"))
    (row,) = view(late).cameras[0].rows
    assert (row.at, row.arrived) == ("08:00:00", "arrived 14:00:00")


@given(st.lists(st.sampled_from(list(State)), min_size=1, max_size=2000))
def test_folding_hides_no_problem(states: list[State]) -> None:
    each = -(-len(states) // strips.MAX_CELLS)
    cells = [Cell(state, False, "08:00 x") for state in states]
    folded = [strips.fold(cells[at : at + each]) for at in range(0, len(cells), each)]
    assert len(folded) <= strips.MAX_CELLS
    bad = strips.PROBLEMS
    assert ({cell.state for cell in folded} & bad != set()) == (set(states) & bad != set())


def test_day_in_progress_has_no_band() -> None:
    assert sites.band(day(completed=0)) == "going"
    # Not even if all is here: extra wakes count too, and others may still be missed.
    assert sites.band(day(completed=6)) == "going"
    assert sites.band(day(completed=5, status="locked", locked_at=NOW)) == "acceptable"
    assert sites.band(day(expected=0)) == "n/a"


def test_two_weeks_end_today_and_gaps_stay_gaps() -> None:
    locked = day(TODAY - timedelta(days=1), completed=2, status="locked", locked_at=NOW)
    found = sites.two_weeks({locked.session_date: locked, TODAY: day()}, today=TODAY)
    assert len(found) == 14
    assert [cell.band for cell in found[-3:]] == ["none", "alert", "going"]
    assert found[-2].says == "14 Jan 2025: 33%, alert"


def test_today_is_not_among_the_days_that_are_over() -> None:
    found = sites.view(
        COMPANY, [SITE], days=[day(completed=9)], wakes=[], cameras=[], now=NOW
    )  # fmt: skip
    (row,) = found.rows
    assert (row.complete_percent, row.band, row.days_say) == (
        100,
        "going",
        "no day with expected wakes is over yet",
    )


def test_a_percentage_says_that_extra_wakes_are_in_it() -> None:
    extra = [wake(n, "complete", expected_at=None, overage_reason="off_schedule") for n in (7, 8)]
    found = view(wake(3, "complete"), *extra, wake(1), day=day(expected=2, completed=3, failed=0))
    assert (found.complete_percent, found.with_extra, found.problems) == (100, True, 1)
    assert not view(wake(3, "complete"), day=day(expected=1, completed=1)).with_extra


def test_wake_expected_while_the_camera_was_elsewhere_is_not_required() -> None:
    """Moved at noon; and put there at nine, on a day that expects it from midnight on."""
    noon, nine = NOW - timedelta(hours=2), NOW - timedelta(hours=5)
    stays = [
        Stay(device_id=UUID(int=3), site_id=SITE.site_id, assigned_at=nine, ended_at=noon),
        Stay(device_id=UUID(int=3), site_id=UUID(int=9), assigned_at=noon, ended_at=None),
    ]
    found = strips.mark_required(
        [wake(6), wake(6.5, "complete"), wake(4), wake(1), wake(-1)],
        stays,
        site_of={UUID(int=4): SITE.site_id},
    )
    assert [each.required for each in found] == [False, True, True, False, False]
    seen = view(*found, cameras=[camera(is_here=False)])
    assert seen.sentence == "1 overdue today"
    assert seen.strip.says == "1 received, 1 overdue, 3 not owed"
    assert [row.state for row in seen.cameras[0].rows] == [State.OVERDUE, State.RECEIVED]
    assert view(*(each for each in found if not each.required)).sentence == "No wakes are due today"


def test_a_day_that_is_open_keeps_its_zone() -> None:
    """The site is in Berlin since an hour ago; its day goes on in Bangkok."""
    moved = replace(SITE, timezone="Europe/Berlin")
    (row,) = sites.view(COMPANY, [moved], days=[day()], wakes=[], cameras=[], now=NOW).rows
    assert (row.local_time, row.zone) == ("14:00", "Asia/Bangkok (UTC+7)")
    tomorrow = TODAY + timedelta(days=1)
    assert sites.takes_effect_at(tomorrow, moved) == sites.midnight(tomorrow, BERLIN)
    assert sites.takes_effect_at(tomorrow, SITE) == sites.midnight(tomorrow, BANGKOK)


def test_sites_that_need_somebody_come_first() -> None:
    other = UUID(int=9)
    bad = Site(
        **{f: getattr(SITE, f) for f in Site.__slots__} | {"site_id": other, "site_name": "Z"}
    )
    found = sites.view(
        COMPANY,
        [SITE, bad],
        days=[day(), day(site_id=other, session_id=UUID(int=8))],
        wakes=[wake(3, "complete"), wake(3, session_id=UUID(int=8))],
        cameras=[camera()],
        now=NOW,
    )
    assert [row.site.site_name for row in found.rows] == ["Z", "River House"]
    assert (found.sentence, found.title) == ("1 of 2 sites needs attention", "(1) Sites")


@pytest.mark.req("DB2-05")
@pytest.mark.parametrize(
    ("last_h", "sentence", "until"),
    [
        (3, "At least 0 of 1 sites need attention", NOW - timedelta(hours=3)),
        (0.1, "The only site is on track", None),
    ],
)
def test_too_many_wakes_are_reported_unless_they_are_due_later(
    monkeypatch: pytest.MonkeyPatch, last_h: float, sentence: str, until: datetime | None
) -> None:
    monkeypatch.setattr(strips, "MAX_WAKES", 2)
    came = [wake(4, "complete"), wake(last_h, "complete")]
    found = sites.view(COMPANY, [SITE], days=[day()], wakes=came, cameras=[camera()], now=NOW)
    assert (found.sentence, found.seen_until) == (sentence, until)


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", "", html).split())


def test_a_session_in_the_words_of_the_document() -> None:
    found = view(*(wake(back, "complete") for back in (1, 2, 3, 4, 5)), wake(6, "failed"))
    shown = text_of(look.part("site_detail.html", "session", found))
    assert "Device Session: Jan 15, 2025" in shown
    assert "Expected: 6 | Completed: 5 | Failed: 1 | Extra: 0" in shown
    assert "83% Complete" in shown
    assert found.bar == (19, 23)
    assert found.sentence == "1 failed today"


def test_what_is_due_so_far_stands_before_what_is_due_later() -> None:
    later = [wake(-n / 12) for n in range(1, 145)]
    found = view(wake(2, "complete"), wake(1, "complete"), *later)
    assert (found.strip.received, found.strip.due_so_far, found.strip.later) == (2, 2, 144)
    shown = text_of(look.part("site_detail.html", "session", found))
    assert shown.index("2 of 2 due so far, 144 later") < shown.index("Expected: 6")


@pytest.mark.req("DB2-07")
def test_a_camera_in_the_words_of_the_document() -> None:
    came = [wake(n / 2, "complete") for n in range(10)]
    extra = [
        wake(n + 0.3, "complete", expected_at=None, overage_reason="off_schedule") for n in (1, 2)
    ]
    found = view(*came, *extra)
    shown = text_of(look.part("site_detail.html", "parts", found, "x"))
    assert "Device-002 (12 received / 10 expected) ⚠️" in shown
    # Extra wakes are stored like others: nothing of the page calls for attention.
    assert (found.problems, found.title) == (0, "River House")


def test_a_failed_extra_is_not_hidden() -> None:
    found = view(
        wake(3, "complete"), wake(1, "failed", expected_at=None, overage_reason="no_schedule")
    )
    assert found.sentence == "1 extra failed today"
    assert found.title == "(1) River House"


@pytest.mark.parametrize(
    ("changes", "contact"),
    [
        ({}, "in-touch"),
        ({"missed": 1}, "in-touch"),
        ({"missed": 2}, "silent"),
        ({"last_seen_at": None}, "never"),
        ({"is_here": False}, "moved"),
        ({"is_active": False}, "retired"),
    ],
)
def test_values_of_a_silent_camera_are_marked_old(changes: dict[str, Any], contact: str) -> None:
    (card,) = view(wake(3), cameras=[camera(**changes)]).cameras
    assert card.contact == contact
    assert card.is_old == (contact != "in-touch")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"wake_schedule_cron": None}, "extra: the camera has no schedule"),
        (
            {"here_since": NOW - timedelta(hours=4)},
            "extra: the camera came after this day had opened; the next one expects it",
        ),
        ({}, "extra: this day expects nothing of the camera"),
    ],
)
def test_extra_wake_says_why_the_day_did_not_expect_it(changes: dict[str, Any], said: str) -> None:
    extra = wake(1, "complete", expected_at=None, overage_reason="no_schedule")
    (row,) = view(extra, cameras=[camera(**changes)]).cameras[0].rows
    assert row.notes == (said,)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "probably still on the camera, last seen 5 min ago"),
        ({"pending_count": 1}, "probably still on the camera, last seen 5 min ago"),
        (
            {"pending_count": 0},
            "the camera was in touch since and holds no image; lost, if none comes within the hour",
        ),
        (
            {"pending_count": 0, "last_seen_at": NOW - timedelta(minutes=50)},
            "probably still on the camera, last seen 50 min ago",
        ),
        ({"last_seen_at": None}, "the camera was never seen"),
    ],
)
def test_overdue_wake_says_where_its_image_may_be(changes: dict[str, Any], said: str) -> None:
    """Of wakes every five minutes one may be due since a moment ago; the next is yet to come."""
    (card,) = view(wake(0.7), wake(0.1), wake(-0.25), cameras=[camera(**changes)]).cameras
    (row,) = card.rows
    assert (row.state, row.notes) == (State.OVERDUE, (said,))
    assert card.next_due == "14:15"


def test_a_thousand_failures_and_long_words_leave_the_page_small() -> None:
    wakes = [wake(n / 100, "failed") for n in range(1000)]
    long = "x" * 4000
    shot: dict[str, Any] = {
        "image_name": long[:255],
        "error_code": "TIMEOUT",
        "error_message": long,
        "retry_count": 0,
        "resend_requested_at": None,
    }
    found = view(
        *wakes,
        cameras=[camera(device_name=long, firmware=long)],
        images={e.image_id: WakeImage(image_id=e.image_id, **shot) for e in wakes if e.image_id},
    )
    (card,) = found.cameras
    assert len(card.rows) == site_day.MAX_ROWS + site_day.MAX_FAILED
    shown = look.part("site_detail.html", "parts", found, "x")
    more = "and 800 more of this day, 800 of them failed; all of them are counted"
    assert more in text_of(shown)
    assert len(shown) < 500_000
    assert long[:300] not in shown


def test_many_wakes_are_cut_but_never_one_that_failed() -> None:
    wakes = [wake(n / 100, "complete" if n != 400 else "failed") for n in range(500)]
    (card,) = view(*wakes).cameras
    assert (len(card.rows), card.hidden) == (site_day.MAX_ROWS + 1, 399)
    assert card.rows[-1].may_resend


def test_of_two_hundred_cameras_only_what_is_open_is_listed() -> None:
    all_of_them = [camera(device_id=UUID(int=100 + n)) for n in range(200)]
    wakes = [
        wake(hour, "complete" if (n, hour) != (7, 3) else "failed", device_id=UUID(int=100 + n))
        for n in range(200)
        for hour in range(1, 11)
    ]
    found = view(*wakes, cameras=all_of_them, query=SiteDayQuery(camera=UUID(int=150)))
    assert [n for n, card in enumerate(found.cameras) if card.rows] == [7, 50]
    assert {card.withheld for card in found.cameras if not card.rows} == {10}
    all_failed = [wake(e.at.hour, "failed", device_id=e.device_id) for e in wakes]
    found = view(*all_failed, cameras=all_of_them, query=SiteDayQuery(camera=UUID(int=250)))
    assert [n for n, card in enumerate(found.cameras) if card.rows] == [*range(60), 150]


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (timedelta(hours=10), "10 hours"),
        (timedelta(hours=9, minutes=31), "10 hours"),
        (timedelta(minutes=61), "1 hour"),
        (timedelta(minutes=59), "59 minutes"),
        (timedelta(seconds=3), "1 minute"),
    ],
)
def test_hours_until_midnight(left: timedelta, said: str) -> None:
    assert schedules.hours(left) == said


def test_a_pending_change_says_when_it_counts() -> None:
    change = Change(
        change_id=UUID(int=7), device_id=UUID(int=3), cron="0 8 * * *",
        effective_date=date(2025, 1, 16),
    )  # fmt: skip
    found = view(wake(3, "complete"), changes=[change])
    assert found.schedules[0].takes_effect == "at midnight (10 hours from now)"
    assert found.schedules[0].words == "every 4 hours"


@pytest.mark.parametrize(
    ("role", "resends", "schedules_it"),
    [
        ("viewer", False, False),
        ("operator", True, False),
        ("technician", True, True),
        ("super_admin", True, True),
    ],
)
def test_page_offers_only_what_the_role_may_do(
    role: str, *, resends: bool, schedules_it: bool
) -> None:
    found = replace(view(wake(3, "failed")), company=replace(COMPANY, role=role))
    shown = look.part("site_detail.html", "parts", found, "x")
    assert (">Resend<" in shown, ">Change schedule<" in shown) == (resends, schedules_it)


def test_page_refreshes_when_the_next_wake_becomes_overdue() -> None:
    found = view(wake(0.16))
    assert found.refresh_at == NOW - timedelta(hours=0.16) + strips.GRACE
    assert view(wake(3, "complete")).refresh_at == NOW + sites.AGES
    assert view(day=None).refresh_at == NOW + sites.OPENING


def test_preview_lists_added_and_removed_wakes() -> None:
    first = datetime(2025, 1, 15, 17, tzinfo=UTC)
    found = schedules.preview(
        {
            "new_wake_schedule_cron": "0 8 * * *",
            "effective_date": "2025-01-16",
            "takes_effect_at": "2025-01-15T17:00:00Z",
            "text": "This change will take effect at midnight (10 hours from now)",
            "expected_today": 24,
            "expected_tomorrow": 32,
        },
        zone=BANGKOK,
        now=NOW,
        before=[first, first + timedelta(hours=4)],
        after=[first + timedelta(hours=4), first + timedelta(hours=8)],
        current=None,
    )
    assert found.when == "Jan 16, 2025, 00:00, Asia/Bangkok (UTC+7)"
    assert found.consequence == "Today keeps 24 expected images; tomorrow 32"
    assert (found.added, found.removed, found.dst_note) == ("08:00", "00:00", "")


def test_names_of_cameras_are_escaped() -> None:
    odd = camera(device_name="<script>alert(1)</script>")
    shown = look.part("site_detail.html", "parts", view(wake(3, "failed"), cameras=[odd]), "x")
    assert "<script>" not in shown


def test_a_picture_that_is_not_ok_says_so_and_one_that_nobody_can_read_is_not_drawn() -> None:
    found = {name: wake(n, "complete") for n, name in enumerate(("ok", "dark", "unreadable"), 1)}
    images = {
        each.image_id: WakeImage(
            image_id=each.image_id, image_name="I.jpg", error_code=None, error_message=None,
            retry_count=0, resend_requested_at=None, quality=None if name == "ok" else name,
            quality_reason=None if name == "ok" else "because of it",
        )
        for name, each in found.items()
        if each.image_id
    }  # fmt: skip
    shown = view(*found.values(), images=images)
    (card,) = shown.cameras
    assert [(row.blemish, row.picture) for row in card.rows] == [
        ("", True), ("Too dark", True), ("Unreadable", False),
    ]  # fmt: skip
    page = look.part("site_detail.html", "parts", shown, "x")
    assert page.count("data-quality=") == 2
    assert 'data-quality="dark" title="because of it"' in page
