"""Who may what on the console: a line for each of its routes, by the lowest role that may use it.

A new page adds its lines here; test_console_access.py fails for a route without one. `anybody`
needs no sign-in. An address with ids gets those of Company one (two_companies.py).
"""

from typing import NamedTuple

ROLES = ("viewer", "operator", "technician", "admin", "super_admin")


class Line(NamedTuple):
    """A method and a path as the application has it, and who may use it."""

    route: str
    least: str


def _lines(least: str, *routes: str) -> list[Line]:
    return [Line(route, least) for route in routes]


LINES = [
    *_lines(
        "anybody",
        "GET /sign-in",
        "POST /sign-in",
        "GET /sign-in/code",
        "POST /sign-in/code",
        "POST /sign-out",
        "GET /static/{digest}/{name:path}",
        "GET /service-worker.js",
        "GET /manifest.webmanifest",
    ),
    *_lines(
        "viewer",
        "GET /live",
        "GET /design",
        "GET /",
        "GET /today",
        "GET /alerts",
        "GET /alerts/rows",
        "GET /alerts/{episode_id}",
        "GET /alerts/{episode_id}/parts",
        "GET /alerts/rules",
        "GET /alerts/rules/new",
        "GET /alerts/rules/{rule_id}",
        "GET /alerts/windows",
        "GET /batches",
        "GET /batches/rows",
        "GET /batches/{batch_id}",
        "GET /batches/{batch_id}/parts",
        "GET /delivery",
        "GET /delivery/rows",
        "GET /delivery/edges/{edge_id}",
        "GET /delivery/edges/{edge_id}/parts",
        "GET /delivery/dead-letters",
        "GET /delivery/dead-letters/orders/{order_id}",
        "GET /delivery/dead-letters/orders/{order_id}/parts",
        "GET /devices",
        "GET /devices/rows",
        "GET /devices/{kind}/{device_id}",
        "GET /devices/{kind}/{device_id}/parts",
        "GET /feed",
        "GET /feed/parts",
        "GET /programs",
        "GET /programs/{program_id}",
        "GET /readings",
        "GET /records",
        "GET /reports",
        "GET /reports/report.pdf",
        "GET /reports/sent/{report_id}.pdf",
        "POST /reports/subscriptions",
        "GET /settings",
        "GET /settings/about",
        "GET /settings/account",
        "GET /settings/account/second-factor/setup",
        "POST /settings/account/second-factor/setup",
        "POST /settings/account/language",
        "POST /settings/account/password",
        "POST /settings/account/second-factor",
        "POST /settings/account/second-factor/codes",
        "POST /settings/account/second-factor/remove",
        "POST /settings/account/sessions/{session_id}/end",
        "POST /settings/account/sessions/end-others",
        "GET /settings/edges",
        "GET /settings/retention",
        "GET /sites",
        "GET /sites/rows",
        "GET /sites/{site_id}",
        "GET /sites/{site_id}/parts",
        "GET /sites/{site_id}/cameras/{device_id}/schedule",
        "GET /sites/images/{image_id}",
        "GET /sites/images/{image_id}/file",
        "GET /sites/images/{image_id}/thumbnail",
        "GET /telemetry",
        "GET /telemetry/compare",
        "GET /telemetry/{device_id}/{metric_type}",
        "GET /telemetry/{device_id}/{metric_type}.csv",
        "GET /telemetry/{device_id}/{metric_type}/now",
        "GET /weighings",
        "GET /weighings/rows",
        "GET /weighings/{session_id}",
        "GET /weighings/{session_id}/parts",
    ),
    *_lines(
        "operator",
        "POST /alerts/windows",
        "POST /alerts/windows/{window_id}/end",
        "GET /feed/intakes/new",
        "POST /feed/intakes/new",
        "GET /feed/lots/new",
        "POST /feed/lots/new",
        "GET /records/new",
        "POST /records/new",
        "POST /alerts/{episode_id}/acknowledge",
        "POST /alerts/{episode_id}/end",
        "GET /batches/new",
        "POST /batches/new",
        "GET /batches/{batch_id}/edit",
        "POST /batches/{batch_id}/edit",
        "POST /sites/images/{image_id}/resend",
    ),
    *_lines(
        "technician",
        "POST /sites/{site_id}/cameras/{device_id}/schedule",
        "POST /sites/{site_id}/cameras/{device_id}/schedule/{change_id}/cancel",
        "POST /settings/edges/invite",
        "POST /settings/edges/{edge_id}/revoke",
    ),
    *_lines(
        "admin",
        "POST /alerts/rules/new",
        "POST /alerts/rules/{rule_id}",
        "POST /alerts/rules/{rule_id}/remove",
        "POST /alerts/rules/{rule_id}/switch",
        "POST /delivery/dead-letters",
        "POST /reports/send",
        # Of others; everybody removes their own.
        "POST /reports/subscriptions/{subscription_id}/remove",
        "GET /settings/about/diagnostics",
        "POST /settings/account/second-factor-rule",
        "GET /settings/audit",
        "GET /settings/people",
        "POST /settings/people",
        "POST /settings/people/{user_id}/password",
        "POST /settings/people/{user_id}/remove",
        "POST /settings/people/{user_id}/role",
        "POST /settings/people/{user_id}/second-factor",
    ),
    # The page itself answers others that they may look at their own company only.
    *_lines("super_admin", "POST /company"),
]
TABLE = {line.route: line.least for line in LINES}
