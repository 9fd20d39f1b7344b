"""cloud-console: pages, their live updates and the same data as JSON."""

from pathlib import Path

from farmiq.ui import look

# Each area has its templates beside its code.
AREAS = ("company", "telemetry", "weighings", "sites", "design", "alerts", "notifications")
look.add_templates(*(Path(__file__).parent / area for area in AREAS))
