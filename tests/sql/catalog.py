"""Questions to PostgreSQL's own catalog."""

import psycopg


def columns(url: str, table: str) -> dict[str, str]:
    """Column → type of a table, in order."""
    return _pairs(
        url,
        """
        select a.attname, format_type(a.atttypid, a.atttypmod)
        from pg_attribute a where a.attrelid = to_regclass(%s) and a.attnum > 0
          and not a.attisdropped order by a.attnum
        """,
        table,
    )


def columns_seen_by(connection: psycopg.Connection, table: str) -> list[str]:
    rows = connection.execute(
        """
        select attname from pg_attribute
        where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped
        """,
        (table,),
    )
    return [row[0] for row in rows.fetchall()]


def indexes(url: str, table: str) -> dict[str, str]:
    """Index → its columns as PostgreSQL spells them."""
    found = _pairs(url, "select indexname, indexdef from pg_indexes where tablename = %s", table)
    return {name: text[text.index("(") :] for name, text in found.items()}


def tables(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            """
            select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
            where n.nspname = 'public' and c.relkind in ('r', 'p') and not c.relispartition
            order by 1
            """
        ).fetchall()
    return [row[0] for row in rows]


def dump(url: str) -> list[tuple[str, ...]]:
    """Everything that makes a schema: columns, constraints, indexes, policies, grants, triggers."""
    with psycopg.connect(url) as connection:
        return [
            tuple(str(value) for value in row)
            for query in _DUMP
            for row in connection.execute(query.encode()).fetchall()
        ]


_DUMP = (
    """
    select 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
      coalesce(pg_get_expr(d.adbin, d.adrelid), '')
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where c.relnamespace = 'public'::regnamespace and a.attnum > 0 and not a.attisdropped
      and c.relkind in ('r', 'p', 'v') order by 2, a.attnum
    """,
    """
    select 'constraint', conrelid::regclass, conname, pg_get_constraintdef(oid)
    from pg_constraint where connamespace = 'public'::regnamespace and conrelid <> 0
    order by conrelid::regclass::text, 3
    """,
    """
    select 'index', tablename, indexname, indexdef from pg_indexes
    where schemaname = 'public' order by 2, 3
    """,
    """
    select 'policy', tablename, policyname, cmd, roles::text, coalesce(qual, ''),
      coalesce(with_check, '') from pg_policies where schemaname = 'public' order by 2, 3
    """,
    """
    select 'security', relname, relrowsecurity, relforcerowsecurity, coalesce(relacl::text, '')
    from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v')
    order by 2
    """,
    """
    select 'columngrant', attrelid::regclass, attname, attacl::text from pg_attribute
    where attacl is not null and attrelid in
      (select oid from pg_class where relnamespace = 'public'::regnamespace)
    order by attrelid::regclass::text, 3
    """,
    """
    select 'trigger', tgrelid::regclass, tgname, pg_get_triggerdef(oid)
    from pg_trigger where not tgisinternal order by tgrelid::regclass::text, 3
    """,
    """
    select 'function', proname, pg_get_function_arguments(oid), prosrc, prosecdef,
      coalesce(proacl::text, ''), pg_get_userbyid(proowner), coalesce(proconfig::text, '')
    from pg_proc where pronamespace = 'public'::regnamespace order by 2, 3
    """,
)


def _pairs(url: str, query: str, *args: str) -> dict[str, str]:
    with psycopg.connect(url) as connection:
        return dict(connection.execute(query.encode(), args).fetchall())
