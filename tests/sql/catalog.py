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
    """Tables of all schemas but PostgreSQL's own; those in public by their bare name."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            """
            select case when n.nspname = 'public' then '' else n.nspname || '.' end || c.relname
            from pg_class c join pg_namespace n on n.oid = c.relnamespace
            where n.nspname <> 'information_schema' and n.nspname !~ '^pg_'
              and c.relkind in ('r', 'p', 'f') and not c.relispartition
            order by 1
            """
        ).fetchall()
    return [row[0] for row in rows]


def qualified(table: str) -> str:
    """With its schema: a name of `tables` means the same whatever the search_path is."""
    return table if "." in table else f"public.{table}"


def dump(url: str) -> list[tuple[str, ...]]:
    """Everything that makes a schema, in all schemas but PostgreSQL's own."""
    with psycopg.connect(url) as connection:
        return dump_of(connection)


def dump_of(connection: psycopg.Connection) -> list[tuple[str, ...]]:
    return [
        tuple(str(value) for value in row)
        for query in _DUMP
        for row in connection.execute(query.encode()).fetchall()
    ]


# The second column names what the row belongs to. Nothing here depends on oids or on the order in
# which rights were granted; columns stand in their order.
_DUMP = (
    # Whatever lies in a schema, of every kind; the queries below say how it looks inside.
    """
    select 'object', i.identity, i.type
    from pg_depend d, lateral pg_identify_object(d.classid, d.objid, d.objsubid) i
    where d.refclassid = 'pg_namespace'::regclass
      and d.refobjid::regnamespace::text !~ '^(pg_|information_schema$)' order by 2, 3
    """,
    # Whatever lies in no schema and was not there from the beginning.
    """
    select 'object', i.identity, i.type, i.version
    from (
      select e.tableoid, e.oid, e.extversion from pg_extension e
      union all select tableoid, oid, srvoptions::text from pg_foreign_server
      union all select tableoid, oid, fdwoptions::text from pg_foreign_data_wrapper
      union all select tableoid, oid, lanowner::regrole::text from pg_language
      union all select tableoid, oid, format('%s %s', castcontext, castmethod) from pg_cast
      union all select tableoid, oid, format('%s %s %s %s', evtevent, evtfoid::regproc,
        evtenabled, evttags) from pg_event_trigger
      union all select tableoid, oid, format('%s %s %s %s %s', puballtables, pubinsert, pubupdate,
        pubdelete, pubtruncate) from pg_publication
    ) o (classid, objid, version), lateral (
      select o.version, x.* from pg_identify_object(o.classid, o.objid, 0) x) i
    where o.objid >= 16384 order by 2, 3
    """,
    """
    select 'schema', n.nspname, pg_get_userbyid(n.nspowner),
      array(select format('%s %s%s', a.grantee::regrole, a.privilege_type, a.is_grantable)
            from aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a order by 1)
    from pg_namespace n where n.nspname !~ '^(pg_|information_schema$)' order by 2
    """,
    """
    select 'relation', c.oid::regclass, c.relkind, pg_get_userbyid(c.relowner), c.relpersistence,
      c.relrowsecurity, c.relforcerowsecurity, c.relreplident, c.relispartition,
      c.reloptions, (select t.reloptions from pg_class t where t.oid = c.reltoastrelid),
      pg_get_expr(c.relpartbound, c.oid), pg_get_partkeydef(c.oid), nullif(c.reloftype, 0)::regtype,
      (select am.amname from pg_am am where am.oid = c.relam),
      (select t.spcname from pg_tablespace t where t.oid = c.reltablespace),
      array(select i.inhparent::regclass::text from pg_inherits i where i.inhrelid = c.oid
            order by i.inhseqno),
      case when c.relkind in ('v', 'm') then pg_get_viewdef(c.oid) end,
      (select format('%s %s', s.srvname, f.ftoptions) from pg_foreign_table f
       join pg_foreign_server s on s.oid = f.ftserver where f.ftrelid = c.oid),
      array(select format('%s %s%s', a.grantee::regrole, a.privilege_type, a.is_grantable)
            from aclexplode(coalesce(c.relacl,
              acldefault(case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner))) a
            where c.relkind <> 'c' order by 1)
    from pg_class c where c.relnamespace::regnamespace::text !~ '^(pg_|information_schema$)'
      and c.relkind not in ('i', 'I') order by c.oid::regclass::text
    """,
    """
    select 'column', c.oid::regclass, a.attname, format_type(a.atttypid, a.atttypmod),
      a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attgenerated, a.attstorage,
      a.attcompression, nullif(a.attstattarget, -1), a.attoptions, a.attfdwoptions, a.attislocal,
      a.attinhcount, nullif(a.attcollation, 0)::regcollation,
      array(select format('%s %s%s', x.grantee::regrole, x.privilege_type, x.is_grantable)
            from aclexplode(a.attacl) x order by 1)
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where c.relnamespace::regnamespace::text !~ '^(pg_|information_schema$)' and a.attnum > 0
      and not a.attisdropped and c.relkind not in ('i', 'I', 'S')
    order by c.oid::regclass::text, a.attnum
    """,
    """
    select 'constraint', case when conrelid = 0 then contypid::regtype::text
        else conrelid::regclass::text end, conname, contype, pg_get_constraintdef(oid),
      convalidated, conislocal, coninhcount, connoinherit
    from pg_constraint where connamespace::regnamespace::text !~ '^(pg_|information_schema$)'
    order by 2, 3
    """,
    """
    select 'index', i.indrelid::regclass, i.indexrelid::regclass, pg_get_indexdef(i.indexrelid),
      i.indisclustered, i.indisreplident, i.indisvalid,
      (select t.spcname from pg_tablespace t where t.oid = c.reltablespace),
      (select array_agg(h.inhparent::regclass::text) from pg_inherits h where h.inhrelid = c.oid),
      array(select a.attstattarget from pg_attribute a where a.attrelid = c.oid order by a.attnum)
    from pg_index i join pg_class c on c.oid = i.indexrelid
    where c.relnamespace::regnamespace::text !~ '^(pg_|information_schema$)'
    order by i.indrelid::regclass::text, i.indexrelid::regclass::text
    """,
    """
    select 'sequence', s.seqrelid::regclass, s.seqtypid::regtype, s.seqstart, s.seqincrement,
      s.seqmin, s.seqmax, s.seqcache, s.seqcycle,
      (select format('%s %s %s', d.deptype, d.refobjid::regclass, a.attname) from pg_depend d
       join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
       where d.classid = 'pg_class'::regclass and d.objid = s.seqrelid and d.deptype in ('a', 'i'))
    from pg_sequence s order by s.seqrelid::regclass::text
    """,
    """
    select 'type', t.oid::regtype, t.typtype, pg_get_userbyid(t.typowner), t.typnotnull,
      nullif(t.typbasetype, 0)::regtype, t.typtypmod, t.typdefault,
      (select r.rngsubtype::regtype from pg_range r where r.rngtypid = t.oid),
      array(select e.enumlabel from pg_enum e where e.enumtypid = t.oid order by e.enumsortorder),
      array(select format('%s %s%s', a.grantee::regrole, a.privilege_type, a.is_grantable)
            from aclexplode(coalesce(t.typacl, acldefault('T', t.typowner))) a order by 1)
    from pg_type t where t.typnamespace::regnamespace::text !~ '^(pg_|information_schema$)'
    order by t.oid::regtype::text
    """,
    """
    select 'policy', p.polrelid::regclass, p.polname, p.polcmd, p.polpermissive,
      array(select r::regrole::text from unnest(p.polroles) r order by 1),
      pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)
    from pg_policy p order by p.polrelid::regclass::text, 3
    """,
    """
    select 'trigger', tgrelid::regclass, tgname, tgenabled, pg_get_triggerdef(oid)
    from pg_trigger where not tgisinternal order by tgrelid::regclass::text, 3
    """,
    """
    select 'rule', r.ev_class::regclass, r.rulename, r.ev_enabled, pg_get_ruledef(r.oid)
    from pg_rewrite r join pg_class c on c.oid = r.ev_class
    where c.relnamespace::regnamespace::text !~ '^(pg_|information_schema$)'
      and r.rulename <> '_RETURN' order by r.ev_class::regclass::text, 3
    """,
    """
    select 'function', p.oid::regproc, pg_get_function_arguments(p.oid), p.prokind,
      pg_get_userbyid(p.proowner),
      case when p.prokind in ('f', 'p', 'w') then pg_get_functiondef(p.oid)
        else (select format('%s %s %s %s %s %s', g.aggkind, g.aggtransfn, g.aggfinalfn,
                g.aggcombinefn, g.aggtranstype::regtype, g.agginitval)
              from pg_aggregate g where g.aggfnoid = p.oid) end,
      array(select format('%s %s%s', a.grantee::regrole, a.privilege_type, a.is_grantable)
            from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a order by 1)
    from pg_proc p where p.pronamespace::regnamespace::text !~ '^(pg_|information_schema$)'
    order by p.oid::regprocedure::text
    """,
    """
    select 'statistics', s.stxrelid::regclass, s.stxname, pg_get_userbyid(s.stxowner),
      pg_get_statisticsobjdef(s.oid)
    from pg_statistic_ext s order by s.stxrelid::regclass::text, 3
    """,
    """
    select 'default rights', d.defaclrole::regrole, d.defaclnamespace::regnamespace,
      d.defaclobjtype, d.defaclacl
    from pg_default_acl d order by d.defaclrole::regrole::text, 3, 4
    """,
    """
    select 'comment', i.identity, i.type, d.description
    from pg_description d, lateral pg_identify_object(d.classoid, d.objoid, d.objsubid) i
    where d.objoid >= 16384 order by 2, 3
    """,
)


def _pairs(url: str, query: str, *args: str) -> dict[str, str]:
    with psycopg.connect(url) as connection:
        return dict(connection.execute(query.encode(), args).fetchall())
