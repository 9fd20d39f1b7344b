"""What the HTTP APIs of a site share: routes, query filters, cursors, JSON bodies, responses.

A service's `Api` is a subclass of Routes. `route` marks its handlers; the first line of a
handler's docstring is the summary of the operation. A handler names its filter as
`Annotated[SomeFilter, Query()]` and its body as
`Annotated[JsonBody[SomeStruct], Depends(BodyOf(SomeStruct, …))]`. What they document about
themselves, `farmiq openapi` writes into the OpenAPI document (D-292).
"""

import base64
import importlib.util
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)
from urllib.parse import urlencode
from uuid import UUID

import msgspec
from fastapi import FastAPI, Header, Request, Response
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from farmiq.messages import check
from farmiq.messages.ids import ID_PATTERN
from farmiq.messages.kinds import require_utc
from farmiq.plumbing import http, sheet
from farmiq.plumbing.http import HttpError

T = TypeVar("T")
Handler = TypeVar("Handler", bound=Callable[..., Any])

MAX_REASONS = 50
NO_STORE = {"Cache-Control": "no-store"}
NOT_VALID = "the request is not valid"
CSV: dict[str, Any] = {"content": {"text/csv": {"schema": {"type": "string"}}}}
PARQUET = "application/vnd.apache.parquet"
# Of lists of the cloud: the edge has no use for the 165 MB that Parquet needs.
TABLES: dict[str, Any] = {
    "content": {
        **CSV["content"],
        PARQUET: {"schema": {"type": "string", "format": "binary"}},
    }
}


# --- routes


def route(
    method: str,
    path: str,
    model: Any = None,
    *,
    responses: Mapping[int, Any] | None = None,
    **options: Any,
) -> Callable[[Handler], Handler]:
    """Mark a method of Routes as the handler of a route that responds with `model`.

    A text among `responses` describes an error. `options` are FastAPI's.
    """
    described: dict[int | str, Any] = dict((responses or {}).items())
    described |= errors({status: why for status, why in described.items() if isinstance(why, str)})
    options |= {"path": path, "methods": [method], "responses": described}
    if model is not None:
        options["response_model"] = model

    def mark(handler: Handler) -> Handler:
        setattr(handler, "route", options)  # noqa: B010 - functions have no such attribute
        return handler

    return mark


class Routes:
    """The HTTP API of a service: the methods that `route` marks, in their order."""

    def add_to(self, app: FastAPI) -> None:
        for name, handler in vars(type(self)).items():
            if options := getattr(handler, "route", None):
                app.router.add_api_route(endpoint=self.endpoint(getattr(self, name)), **options)

    def endpoint(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """What is called for a request; an API may wrap its handlers here."""
        return handler


# --- headers

MAX_KEY_LENGTH = 255
IDEMPOTENCY_KEY = Header(
    alias="Idempotency-Key",
    description="Any text of the client, new for each thing that is posted.",
    min_length=1,
    max_length=MAX_KEY_LENGTH,
    pattern=r"^[\x20-\x7e]*$",
)
IdempotencyKey = Annotated[str, IDEMPOTENCY_KEY]


# --- query parameters


class Filter(BaseModel):
    """The query parameters of an operation; an empty one counts as not given."""

    model_config = ConfigDict(extra="forbid", frozen=True, regex_engine="python-re")

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, given: Any) -> Any:
        return {name: value for name, value in given.items() if value != ""}


def _parse_instant(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        # A plus sign in an address that nobody escaped arrives as a space.
        at = datetime.fromisoformat(value.strip().replace(" ", "+"))
    except ValueError:
        raise ValueError("is not a time such as 2026-05-31T06:00:00Z") from None
    if at.tzinfo is None:
        raise ValueError("has no zone: end it with Z, or with an offset such as %2B02:00")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError("is not between the years 1 and 9999") from None


def parse_day(value: Any) -> Any:
    """A day such as 2026-05-31. Raises ValueError."""
    if not isinstance(value, str):
        return value
    try:
        day = date.fromisoformat(value)
    except ValueError:
        raise ValueError("is not a day such as 2026-05-31") from None
    if not date(1900, 1, 1) <= day <= date(9000, 1, 1):
        raise ValueError("is not between the years 1900 and 9000")
    return day


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ends: the time and the id of its last row."""

    at: Annotated[datetime, msgspec.Meta(tz=True)]
    id: UUID

    def __post_init__(self) -> None:
        require_utc(self.at)


def cursor(*position: Any) -> str:
    """The cursor of the page behind a row with these values; a day is its midnight."""
    values = [
        datetime(value.year, value.month, value.day, tzinfo=UTC) if type(value) is date else value
        for value in position
    ]
    return base64.urlsafe_b64encode(msgspec.json.encode(values)).decode().rstrip("=")


def cursor_of(kind: type[T], *, max_length: int = 1024) -> PlainValidator:
    """For a parameter that is a cursor; `kind` is an array_like struct of its values."""

    def parse(value: Any) -> T:
        text = str(value)
        if len(text) > max_length:
            raise ValueError(f"is longer than {max_length}")
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            return msgspec.json.decode(raw, type=kind)
        except (ValueError, RecursionError):
            raise ValueError("is not one that an earlier page gave") from None

    schema = Annotated[str, Field(max_length=max_length)]
    return PlainValidator(parse, json_schema_input_type=schema)


def any_case(choices: Sequence[str]) -> BeforeValidator:
    """Accepts a choice in any case: people type `incomplete`."""
    known = {value.lower(): value for value in choices}
    return BeforeValidator(lambda value: known.get(str(value).lower(), value))


def one_of(choices: Sequence[str]) -> Any:
    """For a text that must be one of these, where no Literal names them."""
    pattern = "|".join(re.escape(text) for text in choices)
    return Field(pattern=f"^(?:{pattern})$", json_schema_extra={"enum": [*choices]})


def _path_id(value: Any) -> Any:
    try:
        return UUID(str(value))
    except ValueError:
        return UUID(int=0)


# What is no id at all is simply not there; who asks has to be known first.
PathId = Annotated[UUID, BeforeValidator(_path_id)]
PathText = Annotated[str, AfterValidator(lambda text: "" if "\x00" in text else text)]
Id = Annotated[str, Field(pattern=ID_PATTERN)]
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]
Instant = Annotated[datetime, BeforeValidator(_parse_instant)]
Day = Annotated[date, BeforeValidator(parse_day)]
Format = Literal["json", "csv"]
TableFormat = Literal["json", "csv", "parquet"]
Cursor = Annotated[Position, cursor_of(Position, max_length=256)]


class PageFilter(Filter):
    """One page, newest row first."""

    cursor: Annotated[Cursor | None, Field(description="The next_cursor of the page before.")] = (
        None
    )

    def page(self) -> dict[str, Any]:
        """The SQL parameters of this page: one row more says whether there is a next one."""
        position = self.cursor
        return {
            **self.model_dump(by_alias=False, exclude={"cursor", "format"}),
            "after_at": position.at if position else None,
            "after_id": position.id if position else None,
            "limit": getattr(self, "limit") + 1,  # noqa: B009 - each filter has its own maximum
        }


class SpanFilter(PageFilter):
    """One page of what happened in a span of time."""

    begin: Annotated[
        Instant | None,
        Field(alias="from", description="Not before this moment (RFC 3339, with a zone)."),
    ] = None
    end: Annotated[Instant | None, Field(alias="to", description="Before this moment.")] = None

    @field_validator("end")
    @classmethod
    def _not_before_begin(cls, end: datetime | None, info: ValidationInfo) -> datetime | None:
        begin = info.data.get("begin")
        if begin and end and begin > end:
            raise ValueError("is before from")
        return end


class PlaceFilter(SpanFilter):
    """One page of what happened in a place of a farm, in a span of time."""

    tenant: Annotated[Id | None, Field(description="Only this tenant's.")] = None
    farm: Annotated[Id | None, Field(description="Only this farm's.")] = None
    barn: Annotated[Id | None, Field(description="Only this barn's.")] = None
    device: Annotated[Id | None, Field(description="Only this device's.")] = None


F = TypeVar("F", bound=Filter)


def parse(kind: type[F], request: Request, *, lists: Collection[str] = ()) -> F:
    """The query of a page for people; `lists` may be given several times.

    Raises HttpError 400 with all reasons in the message.
    """
    names = [name for name, _ in request.query_params.multi_items()]
    repeated = sorted({name for name in names if names.count(name) > 1} - set(lists))
    reasons = [(name, "is given more than once") for name in repeated]
    given = {name: request.query_params.getlist(name) for name in lists if name in names}
    try:
        query = kind.model_validate({**request.query_params, **given})
    except ValidationError as error:
        reasons += problems(error)
    if reasons:
        message = "; ".join(f"{field}: {reason}" for field, reason in reasons)
        details = [{"field": field, "reason": reason} for field, reason in reasons]
        raise HttpError(400, f"the address is not valid: {message}", details=details) from None
    return query


def problems(error: ValidationError) -> list[tuple[str, str]]:
    """(parameter, reason) of everything that is wrong with a filter."""
    return [
        (".".join(map(str, item["loc"])), http.reason(cast(Any, item))) for item in error.errors()
    ]


def cut(
    rows: Sequence[Mapping[str, Any]], limit: int, *, at: str, key: str
) -> tuple[list[Mapping[str, Any]], str | None]:
    """The rows of a page, and the cursor of the next page if there is one."""
    last = rows[limit - 1] if len(rows) > limit else None
    return [*rows[:limit]], cursor(last[at], last[key]) if last else None


def csv_response(
    request: Request,
    columns: Sequence[str],
    rows: Iterable[Mapping[str, Any]],
    next_cursor: str | None,
) -> Response:
    """A table, as Parquet if the query says so; the header Link has the query of the next page."""
    cells = ([row[name] for name in columns] for row in rows)
    headers = {}
    if next_cursor:
        query = [item for item in request.query_params.multi_items() if item[0] != "cursor"]
        headers["Link"] = f'<?{urlencode([*query, ("cursor", next_cursor)])}>; rel="next"'
    if request.query_params.get("format") == "parquet":
        data = parquet_file(columns, cells, row_model(request.scope["route"].response_model))
        return Response(data, media_type=PARQUET, headers=headers)
    text = sheet.lines([columns, *cells])
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


def row_model(page: type[BaseModel]) -> type:
    """What the rows of a page are: the type of its only list."""
    ((row,),) = (
        get_args(kind) for kind in get_type_hints(page).values() if get_origin(kind) is list
    )
    return cast(type, row)


def parquet_file(columns: Sequence[str], rows: Iterable[Sequence[Any]], row: type) -> bytes:
    """Each column has the type that `row` declares for the name.

    Raises HttpError if this installation cannot write such files.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise HttpError(501, "this installation writes no Parquet: it needs farmiq[history]")
    from farmiq.plumbing import parquet  # noqa: PLC0415 - pyarrow is an extra

    declared = get_type_hints(row)
    return parquet.write(parquet.from_rows({name: declared[name] for name in columns}, rows))


def table(
    request: Request,
    query: Any,
    name: str,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    *,
    key: str = "event_id",
) -> Any:
    """The response of a list by time: its page under `name`, or a file if the query says so."""
    page, following = cut(rows, query.limit, at="occurred_at", key=key)
    if query.format != "json":
        return csv_response(request, columns, page, following)
    return {name: page, "next_cursor": following}


# --- JSON bodies


class JsonBody(Generic[T]):
    """A JSON body, which the handler reads once it knows who calls."""

    def __init__(self, request: Request, spec: "BodyOf[T]") -> None:
        self._request, self._spec = request, spec
        self._raw: bytes | None = None

    async def raw(self) -> bytes:
        """The bytes as they came. Raises HttpError 413 or 415."""
        if self._raw is None:
            spec = self._spec
            self._raw = await http.body(
                self._request, what=spec.what, max_bytes=spec.max_bytes, kind=spec.content_type
            )
        return self._raw

    def decode(self, raw: bytes) -> T:
        """Raises HttpError 400 with everything that is wrong."""
        return self._spec.decode(raw)

    async def read_object(self) -> dict[str, Any]:
        """For a reader that accepts more than the document says. Raises HttpError 400, 413, 415."""
        try:
            value = json.loads(await self.raw())
        except (ValueError, RecursionError):
            raise HttpError(400, "the body is not JSON") from None
        if not isinstance(value, dict):
            raise HttpError(400, "the body is not a JSON object")
        return value

    async def read(self) -> T:
        """Raises HttpError 400, 413 or 415."""
        return self.decode(await self.raw())


class BodyOf(Generic[T]):
    """A dependency that gives the handler a JsonBody of this msgspec type.

    `details` of an error name fields as JSON paths if `root` is "$", else by their bare names.
    """

    def __init__(
        self,
        kind: type[T],
        *,
        max_bytes: int,
        what: str = "a request",
        content_type: str | None = http.JSON,
        root: Literal["$", "body"] = "body",
        message: str = NOT_VALID,
    ) -> None:
        self.kind, self.what, self.max_bytes = kind, what, max_bytes
        self.content_type, self._root, self._message = content_type, root, message
        self._decoder = msgspec.json.Decoder(kind)
        as_what = f"send {content_type}" if content_type else "send it in UTF-8"
        self.errors = {
            400: http.ERRORS[400],
            413: f"PAYLOAD_TOO_LARGE: more than {max_bytes} bytes.",
            415: f"UNSUPPORTED_MEDIA_TYPE: {as_what}.",
        }

    async def __call__(self, request: Request) -> JsonBody[T]:
        return JsonBody(request, self)

    def decode(self, raw: bytes) -> T:
        reasons: list[str]
        try:
            value = self._decoder.decode(raw)
        except check.DECODE_ERRORS as error:
            reasons = [*check.problems(raw, self.kind), *self._unknown(raw)] or [str(error)]
        else:
            # Also what jsonb or text cannot hold, and keys that stand there twice.
            reasons = check.keepable(raw)
            if not reasons:
                return value
        named = detail if self._root == "$" else _bare
        details = [named(reason) for reason in reasons[:MAX_REASONS]]
        raise HttpError(400, self._message, details=details) from None

    def _unknown(self, raw: bytes) -> list[str]:
        if not cast(Any, self.kind).__struct_config__.forbid_unknown_fields:
            return []
        value, _ = check.look(raw)
        known = {field.encode_name for field in msgspec.structs.fields(cast(Any, self.kind))}
        names = [name for name in value if name not in known] if isinstance(value, dict) else []
        return [f"there is no field `{name[:64]}` - at `$`" for name in names]


def detail(reason: str) -> dict[str, str]:
    """The detail of an error for a reason of messages.check; the field is a JSON path."""
    why, _, path = reason.partition(" - at `")
    return {"field": path.removesuffix("`") or "$", "reason": why}


_ABSENT = re.compile(r"missing required field `(.+)`")
_UNKNOWN = re.compile(r"there is no field `(.+)`")


def _bare(reason: str) -> dict[str, str]:
    why, _, path = reason.partition(" - at `$")
    if absent := _ABSENT.fullmatch(why):
        return {"field": absent[1], "reason": "is missing"}
    if unknown := _UNKNOWN.fullmatch(why):
        return {"field": unknown[1], "reason": "is not known"}
    field = re.split(r"[.\[]", path.removesuffix("`").removeprefix("."))[0]
    return {"field": field or "body", "reason": why[:500]}


class Documented:
    """What the document says of callers of a route whose handler asks who calls itself."""

    def __init__(self, *security: str, errors: Mapping[int, str]) -> None:
        self.security, self.errors = security, errors

    async def __call__(self) -> None:
        """Nothing is to be done."""


class ResponseOf:
    """Documents the response of a RawRoute that encodes a msgspec type itself."""

    def __init__(self, kind: type, *, status: int = 200, description: str = "Done.") -> None:
        self.kind, self.status, self.description = kind, status, description

    async def __call__(self) -> None:
        """Nothing is to be done."""


def invalid(*problems: tuple[str, str]) -> HttpError:
    """400 for (field, reason) pairs that a handler found."""
    details = [{"field": field, "reason": reason} for field, reason in problems]
    return HttpError(400, NOT_VALID, details=details)


def missing(field: str, reason: str) -> HttpError:
    """404 for a field that names what is not there."""
    return HttpError(404, reason, details=[{"field": field, "reason": reason}])


# --- responses


class Model(BaseModel):
    """A response. The document and the response have exactly these fields."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


def _utc(at: datetime) -> datetime:
    return at.astimezone(UTC)


# RFC 3339 with Z, whatever zone the database speaks in.
At = Annotated[datetime, AfterValidator(_utc)]


def errors(descriptions: Mapping[Any, str]) -> dict[int | str, dict[str, Any]]:
    """For `responses=`: errors that only this operation has, or says in its own words."""
    return {
        status: {"model": http.ErrorBody, "description": why}
        for status, why in descriptions.items()
    }
