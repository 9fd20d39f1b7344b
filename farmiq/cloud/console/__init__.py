"""cloud-console: pages, their live updates and the same data as JSON."""

from pathlib import Path

from farmiq.ui import look

# Each area has its templates beside its code.
look.add_templates(*sorted({file.parent for file in Path(__file__).parent.rglob("*.html")}))
