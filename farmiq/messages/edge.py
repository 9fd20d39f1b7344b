"""Events of an edge about itself: alerts that it opened and closed (C-110)."""

from typing import Annotated, Literal
from uuid import UUID

import msgspec

from farmiq.messages.ids import Id, Instant
from farmiq.messages.kinds import MAX_COUNT, Name, Text, require_utc

ALERT_OPENED = "edge.alert.opened"
ALERT_CLOSED = "edge.alert.closed"

Severity = Literal["info", "warning", "critical", "security"]
Subject = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


class EdgeAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert of an edge as one tenant may see it; both types carry the same.

    `alert_id` is the same in both, also for each tenant that an alert of the whole edge goes to.
    Within the tenant and the edge at most one alert of a `code` and `subject` is open. The envelope
    has farm, barn and device if the subject names them.
    """

    alert_id: UUID
    code: Name
    subject: Subject
    severity: Severity
    first_at: Instant
    last_at: Instant
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
    message: Text
    edge_cluster_id: Id
    # Of a closed one: a service of the edge, or the person or key that closed it.
    closed_by: Name | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        require_utc(self.first_at, self.last_at)
