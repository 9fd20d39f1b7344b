"""What the pages about programs say."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.programs import view as programs
from farmiq.cloud.console.programs.view import DayOfKind, Program, ProgramsQuery

NOW = datetime(2026, 11, 15, 5, 30, tzinfo=UTC)
TODAY = date(2026, 11, 15)
COMPANY = Company(
    company_id=UUID(int=1), name="One", tenant_id="t-1", timezone="Asia/Bangkok", email="a@b.c"
)
CONTROL, TRIAL = UUID(int=11), UUID(int=12)
PROGRAMS = [
    Program(
        program_id=CONTROL, program_name="As ever", program_type="control", is_active=True, sites=2
    ),
    Program(
        program_id=TRIAL, program_name="New", program_type="experimental", is_active=True, sites=1
    ),
]


def figures(row_id: UUID, name: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": row_id, "name": name, "day": None, "at": NOW, "sessions": 2, "expected": 20,
        "received": 19, "completed": 18, "failed": 1, "pending": 0, "extra": 0, "on_schedule": 18,
        "avg_temperature": 20, "avg_humidity": 60, **changes,
    }  # fmt: skip


def day(program: UUID, back: int, **changes: Any) -> DayOfKind:
    kind = "control" if program == CONTROL else "experimental"
    return DayOfKind(
        **{
            "program_id": program,
            "program_type": kind,
            "session_date": TODAY - timedelta(days=back),
            "is_over": back > 0,
            "expected": 10,
            "completed": 9,
            "temperature": 200.0,
            "temperatures": 10,
            **changes,
        }
    )


def view(query: ProgramsQuery | None = None, *days: DayOfKind) -> programs.View:
    rows = [figures(CONTROL, "As ever"), figures(TRIAL, "New", completed=20)]
    return programs.view(
        COMPANY,
        query=query or ProgramsQuery(),
        begin=TODAY - timedelta(days=30),
        programs=PROGRAMS,
        of_programs=rows,
        level_rows=rows,
        totals=figures(UUID(int=0), "", completed=38, expected=40),
        days=days,
        names={},
        limit=100,
        now=NOW,
    )


def test_control_stands_beside_experimental_with_means_of_all_wakes() -> None:
    days = (
        day(CONTROL, 1, temperature=100.0, temperatures=5),
        day(CONTROL, 2, temperature=10.0, temperatures=1),
        day(TRIAL, 1),
    )
    control, trial = view(None, *days).kinds
    assert (control.name, trial.name) == ("Control", "Experimental")
    assert control.figures.avg_temperature == 110 / 6
    assert (control.figures.complete_percent, trial.figures.complete_percent) == (90, 100)
    assert control.figures.completed_a_day == 9


def test_chart_has_days_that_are_over_and_gaps_where_a_kind_has_none() -> None:
    found = view(None, day(CONTROL, 3), day(TRIAL, 1, completed=12), day(TRIAL, 0, completed=1))
    assert found.chart_names == ("Control", "Experimental")
    at = datetime(2026, 11, 12, tzinfo=UTC)
    # An extra wake does not take a day above 100 %.
    assert found.completeness_rows == (
        (at, 90.0, None), (at + timedelta(days=1), None, None), (at + timedelta(days=2), None, 100),
    )  # fmt: skip


def test_page_of_a_program_compares_it_with_the_other_kind() -> None:
    found = view(ProgramsQuery(program=TRIAL, level="site"), day(CONTROL, 1), day(TRIAL, 1))
    assert found.chart_names == ("Control programs", "New")


def test_rows_lead_one_level_down_and_keep_what_was_chosen() -> None:
    assert view().table.rows[0].href == f"/programs/{CONTROL}"
    site, session = UUID(int=5), UUID(int=6)
    query = ProgramsQuery(program=TRIAL, level="site", days=7)
    below = query.address(level="session", site=site)
    assert below == f"/programs/{TRIAL}?days=7&level=session&site={site}#figures"
    deeper = ProgramsQuery(program=TRIAL, level="session", days=7, site=site)
    assert deeper.address(level="device", session=session).endswith(
        f"level=device&site={site}&session={session}#figures"
    )
    assert [key for key, _, _ in view().level_tabs] == list(programs.LEVELS)
    assert [key for key, _, _ in view(query).level_tabs] == [
        "site", "session", "device", "payload",
    ]  # fmt: skip


def test_nothing_expected_has_no_percentage() -> None:
    row = programs.figures(figures(TRIAL, "New", expected=0, completed=0, sessions=0))
    assert (row.complete_percent, row.completed_a_day) == (None, None)
