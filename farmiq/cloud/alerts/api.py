"""Alerts for people and programs: episodes, rules, trying a rule, maintenance windows."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from fastapi import Depends, Query, Request, Response
from msgspec import Meta
from pydantic import Field

from farmiq import api
from farmiq.api import At, BodyOf, Handler, Id, JsonBody
from farmiq.cloud import episodes
from farmiq.cloud.alerts import dry_run, queries
from farmiq.cloud.alerts.dry_run import NoHistoryError
from farmiq.cloud.alerts.queries import RejectedError
from farmiq.cloud.identity import people, sign_in
from farmiq.cloud.identity.people import AVisit, Caller, People, with_retries
from farmiq.farm.alerts import rules as farm_rules
from farmiq.messages import ids, kinds
from farmiq.messages.alerts import (
    AlertRule,
    AlertRuleValues,
    Baseline,
    Condition,
    EndReason,
    Severity,
)
from farmiq.plumbing import http
from farmiq.plumbing.http import HttpError

ROOT = "/api/v1"
MAX_BYTES = 16 * 1024
MAX_ROWS = 1000
MAX_WINDOW_DAYS = 366
# Roles; each may also do what the ones before it may. Rules are a company's plan.
PLANS, CARE = "admin", "operator"
MISSING = "NOT_FOUND: there is none, or not in the company that is looked at."
FORBIDDEN = {403: "FORBIDDEN: the person's role does not reach.", 429: http.ERRORS[429]}
EpisodeState = Literal["active", "acknowledged", "resolved", "withdrawn"]
Source = Literal["rule", "edge", "camera", "cloud"]


class EpisodeFilter(api.SpanFilter):
    """Which episodes, newest first; the time is the one at which they opened."""

    state: Annotated[
        Literal["open", "active", "acknowledged", "resolved", "withdrawn"] | None,
        Field(description="Only in this state; open is active or acknowledged."),
    ] = None
    severity: Annotated[
        Literal["info", "warning", "critical", "security"] | None,
        Field(description="Only of this severity."),
    ] = None
    source: Annotated[Source | None, Field(description="Only from there.")] = None
    rule: Annotated[Id | None, Field(description="Only of this rule.")] = None
    farm: Annotated[Id | None, Field(description="Only this farm's.")] = None
    barn: Annotated[Id | None, Field(description="Only this barn's.")] = None
    device: Annotated[Id | None, Field(description="Only this device's.")] = None
    edge: Annotated[Id | None, Field(description="Only of this edge.")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="At most so many rows.")] = 100
    format: Annotated[api.Format, Field(description="json or csv.")] = "json"
    company: people.Company = None


class RulePosition(msgspec.Struct, frozen=True, array_like=True):
    """Where a page of rules ends."""

    rule_id: str


class RuleFilter(api.Filter):
    """Which rules, in the order of their ids."""

    cursor: Annotated[
        Annotated[RulePosition, api.cursor_of(RulePosition, max_length=512)] | None,
        Field(description="The next_cursor of the page before."),
    ] = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="At most so many rows.")] = 100
    company: people.Company = None


class WindowFilter(api.PageFilter):
    """Which maintenance windows, the one that ends last first."""

    current: Annotated[bool, Field(description="Only those that are not over.")] = False
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="At most so many rows.")] = 100
    company: people.Company = None


class AlertEpisode(api.Model):
    """One time that something was wrong.

    `opened_at`, `last_at` and `resolved_at` are the data's own time, `raised_at` is when it was
    found here. `paged_at` is when people were called first; nobody is about what is old, or while
    `held_by` names an episode or a window. A withdrawn one never was: data that came late says so.
    `ended_reason` is why it is over if not because of its values: a person ended it (`ended_by`),
    its rule was changed or no longer applies, its edge is gone, its device was moved, revoked or
    silent for long, its batch was closed, or its camera was switched off.
    """

    episode_id: UUID
    cause: str
    source: Source
    rule_id: str | None
    severity: str
    subject: str
    farm_id: str | None
    barn_id: str | None
    device_id: str | None
    edge_cluster_id: str | None
    batch_id: str | None
    message: str
    state: EpisodeState
    opened_at: At
    last_at: At
    resolved_at: At | None
    raised_at: At
    paged_at: At | None
    seen_count: int
    first_value: float | None
    worst_value: float | None
    last_value: float | None
    held_by: str | None
    acknowledged_at: At | None
    acknowledged_by: str | None
    note: str | None
    ended_reason: EndReason | None
    ended_by: str | None
    ended_note: str | None


class AlertEpisodes(api.Model):
    alerts: list[AlertEpisode]
    next_cursor: str | None


class AlertStep(api.Model):
    step: Literal["opened", "worsened", "escalated", "acknowledged", "resolved"]
    created_at: At
    routed_at: At | None


class AlertEpisodeWithSteps(AlertEpisode):
    """`steps` are what people are told of it, once each."""

    steps: list[AlertStep]


class ShownAlertRule(api.Model):
    """`is_default`: it ships with the product and the company has not changed it."""

    rule_id: str
    sentence: str
    signal: str
    condition: Condition
    severity: Severity
    threshold: float | None
    clear: float | None
    for_s: int
    clear_for_s: int
    window_s: int | None
    baseline: Baseline | None
    name: str | None
    farm_id: str | None
    barn_id: str | None
    device_id: str | None
    species: list[str] | None
    min_age_days: int | None
    max_age_days: int | None
    enabled: bool
    is_default: bool
    changed_at: At | None
    changed_by: str | None


class ShownAlertRules(api.Model):
    rules: list[ShownAlertRule]
    next_cursor: str | None


class TriedEpisode(api.Model):
    subject: str
    message: str
    opened_at: At
    resolved_at: At | None
    first_value: float | None
    worst_value: float | None
    last_value: float | None


class RuleTrial(api.Model):
    """`is_whole` is false if there was too much to look at; then episodes may be missing."""

    sentence: str
    begin_at: At
    end_at: At
    series_count: int
    value_count: int
    is_whole: bool
    episodes: list[TriedEpisode]


class AlertWindow(api.Model):
    window_id: UUID
    begin_at: At
    end_at: At
    reason: str
    farm_id: str | None
    barn_id: str | None
    device_id: str | None
    edge_cluster_id: str | None
    rule_id: str | None
    made_by: str
    made_at: At


class AlertWindows(api.Model):
    windows: list[AlertWindow]
    next_cursor: str | None


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody has to say about an episode that they look after or end."""

    note: Annotated[str, Meta(max_length=episodes.MAX_NOTE)] | None = None


class RuleToTry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule, and over how many days it is tried."""

    rule: AlertRuleValues
    days: Annotated[int, Meta(ge=1, le=dry_run.MAX_DAYS)] = dry_run.MAX_DAYS


class WindowValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A maintenance window: all fields of the scope that are set must match."""

    begin_at: ids.Instant
    end_at: ids.Instant
    reason: kinds.Name
    farm_id: ids.Id | None = None
    barn_id: ids.Id | None = None
    device_id: ids.Id | None = None
    edge_cluster_id: ids.Id | None = None
    rule_id: ids.Id | None = None

    def __post_init__(self) -> None:
        kinds.require_utc(self.begin_at, self.end_at)


def _body(kind: type[Any], what: str) -> Any:
    return Depends(BodyOf(kind, what=what, max_bytes=MAX_BYTES))


Note = Annotated[JsonBody[Acknowledgement], _body(Acknowledgement, "a note")]
RuleBody = Annotated[JsonBody[AlertRuleValues], _body(AlertRuleValues, "a rule")]
TryBody = Annotated[JsonBody[RuleToTry], _body(RuleToTry, "a rule")]
WindowBody = Annotated[JsonBody[WindowValues], _body(WindowValues, "a window")]


def _route(
    method: str, path: str, model: Any = None, **options: Any
) -> Callable[[Handler], Handler]:
    """A route for people who are signed in."""
    responses: dict[int, Any] = {404: MISSING, **options.pop("responses", {})}
    return api.route(
        method,
        f"{ROOT}/{path}",
        model,
        dependencies=[sign_in.SIGN_IN],
        responses=responses,
        **options,
    )


@dataclass
class Api(api.Routes):
    sign_ins: sign_in.SignIns

    def __post_init__(self) -> None:
        self.people = People(self.sign_ins)

    def endpoint(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        return with_retries(handler)

    # --- episodes

    @_route("GET", "alerts", AlertEpisodes, responses={200: api.CSV})
    async def alerts(self, request: Request, query: Annotated[EpisodeFilter, Query()]) -> Any:
        """Episodes of alerts, newest first."""
        async with self.people.caller(request, query.company) as caller:
            rows = await queries.page(caller.connection, caller.tenant_id, query.page())
        page, following = api.cut(rows, query.limit, at="opened_at", key="episode_id")
        if query.format == "csv":
            return api.csv_response(request, queries.EPISODE, page, following)
        return {"alerts": page, "next_cursor": following}

    @_route("GET", "alerts/{episode_id}", AlertEpisodeWithSteps)
    async def alert(self, visit: AVisit, episode_id: api.PathId) -> Any:
        """One episode, with the steps that people are told of."""
        async with self.people.caller(*visit) as caller:
            return await _episode(caller, episode_id)

    @_route(
        "POST",
        "alerts/{episode_id}/acknowledge",
        AlertEpisodeWithSteps,
        responses={**FORBIDDEN, 409: "CONFLICT: the episode is over."},
    )
    async def acknowledge(self, visit: AVisit, episode_id: api.PathId, body: Note) -> Any:
        """Say that you look after it (operators): nobody else is called; it stays one episode.

        Whoever did so first stays the one who did.
        """
        raw = await body.raw()
        async with self.people.caller(*visit, least=CARE) as caller:
            await _episode(caller, episode_id)
            note = body.decode(raw).note
            service = await caller.become_service()
            outcome = await episodes.acknowledge(
                service, caller.tenant_id, episode_id, by=caller.email, note=note
            )
            if outcome == "ended":
                raise HttpError(409, "the episode is over")
            return await _episode(caller, episode_id)

    @_route(
        "POST",
        "alerts/{episode_id}/end",
        AlertEpisodeWithSteps,
        responses={**FORBIDDEN, 409: "CONFLICT: the episode is over."},
    )
    async def end(self, visit: AVisit, episode_id: api.PathId, body: Note) -> Any:
        """Say that it is over (operators).

        Its rule opens another episode when the values were clear and are bad again.
        """
        raw = await body.raw()
        async with self.people.caller(*visit, least=CARE) as caller:
            await _episode(caller, episode_id)
            note = body.decode(raw).note
            service = await caller.become_service()
            outcome = await episodes.end(
                service, caller.tenant_id, episode_id, by=caller.email, note=note
            )
            if outcome == "already":
                raise HttpError(409, "the episode is over")
            return await _episode(caller, episode_id)

    # --- rules

    @_route("GET", "alert-rules", ShownAlertRules)
    async def rules(self, request: Request, query: Annotated[RuleFilter, Query()]) -> Any:
        """Rules by id: the company's own, and those that ship where it has none of the id."""
        async with self.people.caller(request, query.company) as caller:
            everything = await queries.all_rules(caller.connection, caller.tenant_id)
        after = query.cursor.rule_id if query.cursor else ""
        rows = [rule for rule in everything if rule["rule_id"] > after][: query.limit + 1]
        page = rows[: query.limit]
        following = api.cursor(page[-1]["rule_id"]) if len(rows) > query.limit else None
        return {"rules": page, "next_cursor": following}

    @_route(
        "POST",
        "alert-rules/try",
        RuleTrial,
        responses={403: FORBIDDEN[403], 429: FORBIDDEN[429]},
    )
    async def try_rule(self, visit: AVisit, body: TryBody) -> Any:
        """Try a rule: the episodes that it would have made in the last days (operators)."""
        raw = await body.raw()
        async with self.people.caller(*visit, least=CARE) as caller:
            wanted = body.decode(raw)
            rule = checked(wanted.rule, "try")
            try:
                trial = await dry_run.try_rule(
                    caller.connection, caller.tenant_id, rule, days=wanted.days
                )
            except NoHistoryError as error:
                raise api.invalid(("signal", str(error))) from None
        return {"sentence": farm_rules.sentence(rule), **asdict(trial)}

    @_route("GET", "alert-rules/{rule_id}", ShownAlertRule)
    async def rule(self, visit: AVisit, rule_id: api.PathText) -> Any:
        """One rule."""
        async with self.people.caller(*visit) as caller:
            return await _rule(caller, rule_id)

    @_route(
        "PUT",
        "alert-rules/{rule_id}",
        ShownAlertRule,
        responses={
            **FORBIDDEN,
            201: {"model": ShownAlertRule, "description": "Added."},
            409: "CONFLICT: the company has as many rules as it may.",
        },
    )
    async def put_rule(
        self, visit: AVisit, response: Response, rule_id: api.PathText, body: RuleBody
    ) -> Any:
        """Add or change a rule (admins); one that ships is changed under its id.

        What an older version of it has open is over.
        """
        raw = await body.raw()
        async with self.people.caller(*visit, least=PLANS) as caller:
            rule = checked(body.decode(raw), rule_id)
            known = await queries.rule(caller.connection, caller.tenant_id, rule_id)
            service = await caller.become_service()
            try:
                await queries.set_rule(service, caller.tenant_id, rule, actor=caller.email)
            except RejectedError as error:
                raise HttpError(409, str(error)) from None
            response.status_code = 200 if known else 201
            return await _rule(caller, rule_id)

    @_route(
        "DELETE",
        "alert-rules/{rule_id}",
        status_code=204,
        responses={**FORBIDDEN, 409: "CONFLICT: it ships with the product; switch it off."},
    )
    async def delete_rule(self, visit: AVisit, rule_id: api.PathText) -> None:
        """Remove a rule (admins); one that ships under the same id is in force again."""
        async with self.people.caller(*visit, least=PLANS) as caller:
            service = await caller.become_service()
            try:
                removed = await queries.remove_rule(
                    service, caller.tenant_id, rule_id, actor=caller.email
                )
            except RejectedError as error:
                raise HttpError(409, str(error)) from None
            if not removed:
                raise HttpError(404, "there is no such rule")

    # --- maintenance windows

    @_route("GET", "alert-windows", AlertWindows)
    async def windows(self, request: Request, query: Annotated[WindowFilter, Query()]) -> Any:
        """Maintenance windows, the one that ends last first."""
        async with self.people.caller(request, query.company) as caller:
            rows = await queries.windows(caller.connection, caller.tenant_id, query.page())
        page, following = api.cut(rows, query.limit, at="end_at", key="window_id")
        return {"windows": page, "next_cursor": following}

    @_route(
        "POST",
        "alert-windows",
        AlertWindow,
        status_code=201,
        responses={**FORBIDDEN, 409: "CONFLICT: there are as many windows as there may be."},
    )
    async def post_window(self, visit: AVisit, body: WindowBody) -> Any:
        """Hold back calls for a while, for all or for a place, an edge or a rule (operators)."""
        raw = await body.raw()
        async with self.people.caller(*visit, least=CARE) as caller:
            window = body.decode(raw)
            if problem := window_problem(window.begin_at, window.end_at):
                raise api.invalid(("end_at", problem))
            service = await caller.become_service()
            try:
                return await queries.add_window(
                    service,
                    caller.tenant_id,
                    msgspec.structs.asdict(window),
                    actor=caller.email,
                )
            except RejectedError as error:
                raise HttpError(409, str(error)) from None

    @_route("DELETE", "alert-windows/{window_id}", status_code=204, responses=FORBIDDEN)
    async def delete_window(self, visit: AVisit, window_id: api.PathId) -> None:
        """End a maintenance window now (operators)."""
        async with self.people.caller(*visit, least=CARE) as caller:
            service = await caller.become_service()
            if not await queries.remove_window(
                service, caller.tenant_id, window_id, actor=caller.email
            ):
                raise HttpError(404, "there is no such window")


def checked(values: AlertRuleValues, rule_id: api.PathText) -> AlertRule:
    """The rule of a body under the id of its path. Raises HttpError 400 with all reasons."""
    try:
        rule = msgspec.convert({**msgspec.structs.asdict(values), "rule_id": rule_id}, AlertRule)
    except msgspec.ValidationError as error:
        raise api.invalid(("path", str(error))) from None
    if problems := farm_rules.problems(rule):
        raise api.invalid(*problems)
    return rule


def window_problem(begin_at: datetime, end_at: datetime) -> str | None:
    """What is wrong with the times of a maintenance window."""
    if end_at <= begin_at:
        return "is not after begin_at"
    if (end_at - begin_at).days > MAX_WINDOW_DAYS:
        return f"is more than {MAX_WINDOW_DAYS} days after begin_at"
    return None


async def _episode(caller: Caller, episode_id: UUID) -> dict[str, Any]:
    """Raises HttpError 404, also for episodes of other companies."""
    row = await queries.episode(caller.connection, caller.tenant_id, episode_id)
    if row is None:
        raise HttpError(404, "there is no such episode")
    return row


async def _rule(caller: Caller, rule_id: api.PathText) -> dict[str, Any]:
    row = await queries.rule(caller.connection, caller.tenant_id, rule_id)
    if row is None:
        raise HttpError(404, "there is no such rule")
    return row
