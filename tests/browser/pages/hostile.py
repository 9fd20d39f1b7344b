"""Stored text that would run, turn its line around or break the layout if it were not inert."""

from typing import Any

import psycopg
from psycopg import sql

# Markup, a template's braces, right to left without an end, and a word without a break.
_MARKUP = (
    '"><img src=x onerror="window.evil=1"><script>window.evil=2</script>'
    "</textarea></title>{{ 7*7 }}\u202etfel ot thgir \u0627\u0644\u062f\u062c\u0627\u062c "
)
LENGTHS = (4096, 1000, 500, 200, 120, 64)
# Columns that hold what people or devices wrote; ids and states are not among them.
_WRITTEN = """
    select c.table_name, c.column_name from information_schema.columns c
    join information_schema.tables t using (table_schema, table_name)
    where t.table_type = 'BASE TABLE' and c.table_schema = 'public' and c.data_type = 'text'
      and c.is_generated = 'NEVER' and (c.column_name in ('name', 'message', 'note', 'reason',
          'error', 'place', 'firmware', 'firmware_version', 'actor', 'entered_by', 'address',
          'product', 'station_id', 'dlq_reason', 'gist', 'species', 'breed')
        or c.column_name ~ '_(name|message|note|reason|by|by_ref|text)$')
    order by 1, 2
"""


def text(length: int) -> str:
    return (_MARKUP + "W" * length)[:length]


def poison(admin_url: str) -> list[str]:
    """Such a text into every written column of every table, as long as it takes; which ones."""
    changed = []
    with psycopg.connect(admin_url, autocommit=True) as owner:
        owner.execute("set row_security = off")
        for table, column in owner.execute(_WRITTEN.encode()).fetchall():
            if _changed(owner, table, column):
                changed.append(f"{table}.{column}")
    return changed


def _changed(owner: Any, table: str, column: str) -> bool:
    # No two the same: names may have to differ.
    query = sql.SQL("update {} set {} = %s || ctid where {} is not null").format(
        sql.Identifier(table), sql.Identifier(column), sql.Identifier(column)
    )
    for length in LENGTHS:
        try:
            return bool(owner.execute(query, (text(length),)).rowcount)
        except (psycopg.errors.IntegrityError, psycopg.errors.RaiseException):
            continue  # a rule of the table: shorter, or not at all
    return False
