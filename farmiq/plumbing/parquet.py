"""Parquet files, written from CSV and read in parts. pyarrow is an extra: farmiq[history].

Whoever needs this imports it there: pyarrow takes 60 MB of memory.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from types import NoneType
from typing import Any, BinaryIO, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

CONTENT_TYPE = "application/vnd.apache.parquet"
# What is read of a file at once: of one sensor and minute about three weeks.
ROW_GROUP = 32_768
_LEVEL = 3
_ID = pa.binary(16)
_MOMENT = pa.timestamp("us", tz="UTC")

# How a column is written in CSV: an id as 32 hex digits, a moment as microseconds since 1970.
Kind = Literal["text", "id", "moment", "number", "flag"]
_IN_CSV = {
    "text": pa.string(),
    "id": pa.string(),
    "moment": pa.int64(),
    "number": pa.float64(),
    "flag": pa.bool_(),
}
Table = Any


def from_csv(lines: bytes, columns: Mapping[str, Kind]) -> Table:
    """The table of these lines, which PostgreSQL wrote without a header."""
    read = pyarrow.csv.read_csv(
        pa.BufferReader(lines),
        read_options=pyarrow.csv.ReadOptions(column_names=list(columns), use_threads=False),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={name: _IN_CSV[kind] for name, kind in columns.items()},
            null_values=[],
            true_values=["t"],
            false_values=["f"],
        ),
    )
    return pa.table({name: _stored(read[name], kind) for name, kind in columns.items()})


def _stored(column: Any, kind: Kind) -> Any:
    if kind == "moment":
        return column.cast(_MOMENT)
    if kind == "id":
        ids = bytes.fromhex("".join(column.to_pylist()))
        return pa.Array.from_buffers(_ID, len(column), [None, pa.py_buffer(ids)])
    return column.combine_chunks()


# What a column is of, by the Python type of its values; all else is text.
_OF = {
    bool: pa.bool_(), int: pa.int64(), float: pa.float64(), date: pa.date32(), datetime: _MOMENT,
}  # fmt: skip


def from_rows(types: Mapping[str, Any], rows: Iterable[Sequence[Any]]) -> Table:
    """A table to download, of columns of these Python types: the same for any rows, and for none.

    Ids are text there, and so is what has values of many kinds.
    """
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in types]
    made = map(_column, columns, types.values())
    return pa.table(dict(zip(types, made, strict=True)))


def _column(values: list[Any], declared: Any) -> Any:
    kinds = {kind for kind in get_args(declared) or (declared,) if kind is not NoneType}
    kind = _OF.get(kinds.pop()) if len(kinds) == 1 else None
    if kind is None:
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    if kind == pa.float64():
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, kind)


def write(table: Table) -> bytes:
    """The bytes of a file; the same for the same table."""
    sink = pa.BufferOutputStream()
    moments = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
    unlike = {field.name for field in table.schema if field.type == _ID} | set(moments)
    pq.write_table(
        table,
        sink,
        row_group_size=ROW_GROUP,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=[name for name in table.column_names if name not in unlike],
        column_encoding=dict.fromkeys(moments, "DELTA_BINARY_PACKED"),
    )
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_all(data: bytes) -> Table:
    return pq.read_table(pa.BufferReader(data))


def read_some(
    file: BinaryIO,
    *,
    column: str,
    values: Collection[str],
    moment: str,
    begin: datetime,
    end: datetime,
    columns: Sequence[str] | None = None,
) -> Table:
    """The rows with one of `values` in `column` and `moment` from `begin` to before `end`.

    Only the groups of rows are read that can hold such rows, by what the file says of them.
    """
    opened = pq.ParquetFile(file)
    groups = [
        number
        for number in range(opened.num_row_groups)
        if (spans := _spans(opened.metadata.row_group(number)))
        and any(spans[column][0] <= value <= spans[column][1] for value in values)
        and spans[moment][0] < end
        and spans[moment][1] >= begin
    ]
    wanted = None if columns is None else list({*columns, column, moment})
    table = opened.read_row_groups(groups, columns=wanted, use_threads=False)
    at = table[moment]
    mask = pc.and_(
        pc.is_in(table[column], pa.array(sorted(values), pa.string())),
        pc.and_(
            pc.greater_equal(at, pa.scalar(begin, _MOMENT)), pc.less(at, pa.scalar(end, _MOMENT))
        ),
    )
    return table.filter(mask)


def _spans(group: Any) -> dict[str, tuple[Any, Any]]:
    """The least and the greatest value of each column in a group of rows."""
    columns = [group.column(number) for number in range(group.num_columns)]
    return {
        column.path_in_schema: (column.statistics.min, column.statistics.max)
        for column in columns
        if column.statistics is not None and column.statistics.has_min_max
    }


def without(table: Table, name: str, known: Any) -> tuple[Table, Table]:
    """(rows whose `name` is not among `known`, rows where it is)."""
    mask = pc.is_in(table[name], known)
    return table.filter(pc.invert(mask)), table.filter(mask)


def texts(values: Sequence[str]) -> Any:
    """As `known` of `without`."""
    return pa.array(values, pa.string())


def span(table: Table, name: str) -> tuple[Any, Any]:
    """The least and the greatest value of a column; texts by their bytes."""
    both = pc.min_max(table[name]).as_py()
    return both["min"], both["max"]
