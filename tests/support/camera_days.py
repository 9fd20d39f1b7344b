"""Days of cameras, written as the owner: what the functions of 004 would have left behind."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import psycopg
from psycopg import sql

from farmiq.plumbing import ids


@dataclass
class Days:
    """Everything it makes is of one company."""

    connection: psycopg.Connection
    company_id: UUID
    _count: int = field(default=0)

    def _row(self, table: str, **values: object) -> None:
        statement = sql.SQL("insert into {} ({}) values ({})").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, values)),
            sql.SQL(", ").join(map(sql.Placeholder, values)),
        )
        self.connection.execute(statement, values)

    def program(self, name: str, kind: str = "control") -> UUID:
        made = ids.new()
        self._row(
            "pilot_programs", program_id=made, company_id=self.company_id, program_name=name,
            program_type=kind,
        )  # fmt: skip
        return made

    def site(self, program_id: UUID, name: str, timezone: str = "Asia/Bangkok") -> UUID:
        made = ids.new()
        self._row(
            "sites", site_id=made, company_id=self.company_id, program_id=program_id,
            site_name=name, timezone=timezone,
        )  # fmt: skip
        return made

    def camera(self, site_id: UUID | None, name: str, cron: str | None = "0 8,16 * * *") -> UUID:
        made = ids.new()
        self._row(
            "devices", device_id=made, company_id=self.company_id, site_id=site_id,
            mac=made.hex[-12:].upper(), device_name=name, wake_schedule_cron=cron,
        )  # fmt: skip
        return made

    def day(self, site_id: UUID, at: date, expected: dict[UUID, int]) -> UUID:
        """`expected` windows by camera."""
        made = ids.new()
        self.connection.execute(
            """
            insert into site_device_sessions (session_id, company_id, program_id, site_id,
              session_date, timezone, expected_wake_count, opened_at)
            select %s, company_id, program_id, site_id, %s, timezone, %s, now()
            from sites where site_id = %s
            """,
            (made, at, sum(expected.values()), site_id),
        )
        for device_id, count in expected.items():
            for index in range(1, count + 1):
                self._row(
                    "expected_wakes", session_id=made, device_id=device_id,
                    company_id=self.company_id, wake_window_index=index,
                    expected_at=_at(at, index),
                )  # fmt: skip
        return made

    def wake(
        self,
        session_id: UUID,
        device_id: UUID,
        index: int | None = None,
        *,
        status: str = "complete",
        temperature: float | None = None,
        humidity: float | None = None,
        captured_at: datetime | None = None,
    ) -> UUID:
        """The payload, its id also the image's; without an index nobody expected it."""
        self._count += 1
        made = ids.new()
        row = self.connection.execute(
            "select program_id, site_id, session_date from site_device_sessions "
            "where session_id = %s",
            (session_id,),
        ).fetchone()
        assert row is not None
        at = captured_at or _at(row[2], self._count)
        image = "receiving" if status == "pending" else status
        self._row(
            "device_images", image_id=made, company_id=self.company_id, device_id=device_id,
            image_name=f"IMG_{self._count:03}.jpg", captured_at=at, original_capture_date=row[2],
            status=image, image_url="s3://b/i" if image == "complete" else None,
            received_at=at if image == "complete" else None, created_at=at,
        )  # fmt: skip
        self._row(
            "device_wake_payloads", payload_id=made, company_id=self.company_id,
            program_id=row[0], site_id=row[1], site_device_session_id=session_id,
            device_id=device_id, image_id=made, captured_at=at, wake_window_index=index,
            overage_flag=index is None, overage_reason=None if index else "off_schedule",
            payload_status=status, temperature=temperature, humidity=humidity, created_at=at,
        )  # fmt: skip
        return made

    def alert(self, device_id: UUID, at: date, kind: str = "low_battery") -> UUID:
        made = ids.new()
        self._row(
            "device_alerts", alert_id=made, company_id=self.company_id, device_id=device_id,
            alert_type=kind, alert_date=at, message="look at it", created_at=_at(at, 1),
        )  # fmt: skip
        return made

    def change(self, device_id: UUID, effective: date, cron: str = "0 9 * * *") -> UUID:
        made = ids.new()
        self._row(
            "device_schedule_changes", change_id=made, company_id=self.company_id,
            device_id=device_id, new_wake_schedule_cron=cron, requested_at=_at(effective, 1),
            effective_date=effective,
        )  # fmt: skip
        return made

    def command(self, device_id: UUID, name: str = "capture_image") -> UUID:
        made = ids.new()
        self._row(
            "camera_commands", command_id=made, company_id=self.company_id, device_id=device_id,
            name=name, created_by="test", created_at=datetime.now(UTC),
        )  # fmt: skip
        return made

    def message(self, device_id: UUID | None, mac: str = "AABBCCDDEEFF") -> UUID:
        """In quarantine; of a camera that nobody registered if there is none."""
        made, now = ids.new(), datetime.now(UTC)
        self._row(
            "camera_quarantine", quarantine_id=made, device_id=device_id,
            company_id=self.company_id if device_id else None, mac=mac, topic=f"device/{mac}/data",
            raw=b"\xff{", raw_size_bytes=2, message_sha256=made.bytes,
            kind="format" if device_id else "unknown", reasons=["not a JSON object"],
            first_received_at=now, last_received_at=now,
        )  # fmt: skip
        return made


def _at(day: date, minutes: int) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(minutes=minutes)
