"""Alerts for people and programs: episodes, rules, trying a rule, maintenance windows."""

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import Depends, Query, Request, Response

from farmiq import api
from farmiq.api import BodyOf, Handler, JsonBody
from farmiq.cloud import episodes
from farmiq.cloud.alerts import dry_run
from farmiq.cloud.alerts.episodes import queries
from farmiq.cloud.alerts.episodes.queries import RejectedError
from farmiq.cloud.alerts.models import (
    Acknowledgement,
    AlertEpisodes,
    AlertEpisodeWithSteps,
    AlertWindow,
    AlertWindows,
    EpisodeFilter,
    RuleFilter,
    RuleToTry,
    RuleTrial,
    ShownAlertRule,
    ShownAlertRules,
    WindowFilter,
    WindowValues,
)
from farmiq.cloud.identity import people
from farmiq.cloud.identity.people import FORBIDDEN, AVisit, Caller, PeopleRoutes
from farmiq.farm.alerts import rules as farm_rules
from farmiq.messages.alerts import (
    AlertRule,
    AlertRuleValues,
)
from farmiq.plumbing.http import HttpError

ROOT = "/api/v1"
MAX_BYTES = 16 * 1024
MAX_WINDOW_DAYS = 366
# Roles; each may also do what the ones before it may. Rules are a company's plan.
PLANS, CARE = "admin", "operator"


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
    responses: dict[int, Any] = {404: people.MISSING, **options.pop("responses", {})}
    return people.route(method, f"{ROOT}/{path}", model, responses=responses, **options)


class Api(PeopleRoutes):
    # --- episodes

    @_route("GET", "alerts", AlertEpisodes, responses={200: api.TABLES})
    async def alerts(self, request: Request, query: Annotated[EpisodeFilter, Query()]) -> Any:
        """Episodes of alerts, newest first."""
        async with self.people.caller(request, query.company) as caller:
            rows = await queries.page(caller.connection, caller.tenant_id, query.page())
        page, following = api.cut(rows, query.limit, at="opened_at", key="episode_id")
        if query.format != "json":
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

        If several people do so, the first is the one who is shown.
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
            trial = await dry_run.try_rule(
                caller.connection, caller.tenant_id, rule, days=wanted.days
            )
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
