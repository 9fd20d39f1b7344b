"""The routes of rules and maintenance windows: read, try, save, switch, end."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Any
from urllib.parse import quote
from uuid import UUID

import msgspec
from fastapi import FastAPI, Request, Response

from farmiq.cloud.alerts import dry_run, models
from farmiq.cloud.alerts.episodes import queries as alert_queries
from farmiq.cloud.alerts.episodes.queries import RejectedError
from farmiq.cloud.console import acting, pages
from farmiq.cloud.console.acting import redirect
from farmiq.cloud.console.alerts import queries, rule_form, rule_view
from farmiq.cloud.console.alerts.rule_form import Parsed
from farmiq.farm.alerts.defaults import DEFAULTS
from farmiq.messages.alerts import AlertRule
from farmiq.plumbing import db
from farmiq.plumbing.http import HttpError
from farmiq.ui import look, words

PLANS, CARE = "admin", "operator"
RULE = "/alerts/rules/{rule_id}"
DAYS = 7
MAX_PLACES = 2000
MAX_WINDOWS = 200
_SHIPPED = {rule.rule_id for rule in DEFAULTS}


@dataclass(frozen=True)
class RulePages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/alerts/rules", self.rules, "GET"),
            ("/alerts/rules/new", self.new_rule, "GET"),
            ("/alerts/rules/new", self.save_new, "POST"),
            ("/alerts/windows", self.windows, "GET"),
            ("/alerts/windows", self.add_window, "POST"),
            ("/alerts/windows/{window_id}/end", self.end_window, "POST"),
            (RULE, self.rule, "GET"),
            (RULE, self.save, "POST"),
            (f"{RULE}/switch", self.switch, "POST"),
            (f"{RULE}/remove", self.remove, "POST"),
        )

    # --- rules

    async def rules(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            rows = await alert_queries.all_rules(connection, company.tenant_id)
        view = rule_view.rules_view(company, rows, now=now)
        return await self.pages.page("alert_rules.html", signed_in, view)

    async def new_rule(self, request: Request) -> Response:
        """The form; with its fields in the address also the sentence and a dry run."""
        return await self._form(request, None)

    async def rule(self, request: Request) -> Response:
        return await self._form(request, request.path_params["rule_id"])

    async def save_new(self, request: Request) -> Response:
        return await self._save(request, None)

    async def save(self, request: Request) -> Response:
        return await self._save(request, request.path_params["rule_id"])

    async def switch(self, request: Request) -> Response:
        """Switch a rule on or off."""
        form = await acting.form(self.pages, request)
        rule_id = request.path_params["rule_id"]
        async with acting.caller(self.pages, request, least=PLANS) as caller:
            row = await alert_queries.rule(caller.connection, caller.tenant_id, rule_id)
            if row is None:
                raise _no_rule()
            fields = {field.name for field in msgspec.structs.fields(AlertRule)}
            values = {name: value for name, value in row.items() if name in fields}
            values["enabled"] = form.get("enabled") == "yes"
            rule = msgspec.convert(values, AlertRule)
            service = await caller.become_service()
            try:
                await alert_queries.set_rule(service, caller.tenant_id, rule, actor=caller.email)
            except RejectedError as error:
                raise HttpError(409, str(error)) from None
        return redirect(request, f"/alerts/rules#r-{quote(rule_id, safe='')}")

    async def remove(self, request: Request) -> Response:
        """Remove an own rule; one that ships under the same id is in force again."""
        await acting.form(self.pages, request)
        async with acting.caller(self.pages, request, least=PLANS) as caller:
            service = await caller.become_service()
            try:
                removed = await alert_queries.remove_rule(
                    service, caller.tenant_id, request.path_params["rule_id"], actor=caller.email
                )
            except RejectedError as error:
                raise HttpError(409, str(error)) from None
            if not removed:
                raise _no_rule()
        return redirect(request, "/alerts/rules")

    async def _form(
        self,
        request: Request,
        rule_id: str | None,
        *,
        posted: Mapping[str, str] | None = None,
        problem: str = "",
        status: int = 200,
    ) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        given = posted if posted is not None else _given(request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            row = None
            if rule_id is not None:
                row = await alert_queries.rule(connection, company.tenant_id, rule_id)
                if row is None:
                    raise _no_rule()
            stored = rule_form.fields(row) if row else rule_form.EMPTY
            # A form that lacks fields is answered with what is wrong with it.
            form = {**rule_form.EMPTY, **given} if given else stored
            parsed = rule_form.parse(form, rule_id=rule_id or "try")
            tried = None
            if given and parsed.rule is not None and company.may(CARE):
                tried = await _try(connection, company.tenant_id, parsed.rule, company.timezone)
            view = rule_view.rule_view(
                company,
                row=row,
                form=form,
                rule=parsed.rule,
                problems=parsed.problems if given else {},
                problem=problem,
                tried=tried,
                places=await queries.places(connection, limit=MAX_PLACES),
                is_shipped=rule_id in _SHIPPED,
                now=now,
            )
        if given and parsed.rule is None:
            status = 422
        return await self.pages.page("alert_rule.html", signed_in, view, status=status)

    async def _save(self, request: Request, rule_id: str | None) -> Response:
        form = await acting.form(self.pages, request)
        problem = ""
        async with acting.caller(self.pages, request, least=PLANS) as caller:
            known = {
                row["rule_id"]: row
                for row in await alert_queries.all_rules(caller.connection, caller.tenant_id)
            }
            if rule_id is not None and rule_id not in known:
                raise _no_rule()
            parsed = _parsed(form, rule_id, known)
            if parsed.rule is not None:
                service = await caller.become_service()
                try:
                    await alert_queries.set_rule(
                        service, caller.tenant_id, parsed.rule, actor=caller.email
                    )
                except RejectedError as error:
                    problem = str(error)
        if parsed.rule is None or problem:
            return await self._form(
                request, rule_id, posted=form, problem=problem, status=409 if problem else 422
            )
        return redirect(request, f"/alerts/rules#r-{quote(parsed.rule.rule_id, safe='')}")

    # --- maintenance windows

    async def windows(self, request: Request) -> Response:
        return await self._windows(request, {}, {})

    async def add_window(self, request: Request) -> Response:
        form = await acting.form(self.pages, request)
        problem = ""
        async with acting.caller(self.pages, request, least=CARE) as caller:
            now = (await db.fetch_value(caller.connection, "select fn_now()")).astimezone(UTC)
            company = await self.pages.company(
                caller.connection, await self.pages.must_be_signed_in(request)
            )
            values, problems = rule_view.window_values(
                form, now=now, zone=words.zone(company.timezone)
            )
            if not problems:
                try:
                    window = msgspec.convert(values, models.WindowValues)
                    service = await caller.become_service()
                    await alert_queries.add_window(
                        service,
                        caller.tenant_id,
                        msgspec.structs.asdict(window),
                        actor=caller.email,
                    )
                except (msgspec.ValidationError, RejectedError) as error:
                    problem = str(error)
        if problems or problem:
            return await self._windows(request, form, problems, problem=problem, status=422)
        return redirect(request, "/alerts/windows")

    async def end_window(self, request: Request) -> Response:
        await acting.form(self.pages, request)
        try:
            window_id = UUID(request.path_params["window_id"])
        except ValueError:
            raise HttpError(404, "there is no such window") from None
        async with acting.caller(self.pages, request, least=CARE) as caller:
            service = await caller.become_service()
            if not await alert_queries.remove_window(
                service, caller.tenant_id, window_id, actor=caller.email
            ):
                raise HttpError(404, "there is no such window")
        return redirect(request, "/alerts/windows")

    async def _windows(
        self,
        request: Request,
        form: Mapping[str, str],
        problems: Mapping[str, str],
        *,
        problem: str = "",
        status: int = 200,
    ) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            view = rule_view.windows_view(
                company,
                await queries.windows(connection, limit=MAX_WINDOWS),
                places=await queries.places(connection, limit=MAX_PLACES),
                form=form,
                problems=problems,
                problem=problem,
                now=now,
            )
        return await self.pages.page("alert_windows.html", signed_in, view, status=status)


def _given(request: Request) -> dict[str, str]:
    """The fields of the form in the address; empty if it has none."""
    query = request.query_params
    given = {name: query.get(name, "")[:500].replace("\0", " ") for name in rule_form.FIELDS}
    return given if query.get("signal") else {}


def _parsed(form: Mapping[str, str], rule_id: str | None, known: Mapping[str, Any]) -> Parsed:
    enabled = known[rule_id]["enabled"] if rule_id is not None else True
    wanted = rule_id or rule_form.new_id(form.get("name"), set(known))
    return rule_form.parse(form, rule_id=wanted, enabled=enabled)


async def _try(
    connection: db.Connection, tenant_id: str, rule: AlertRule, timezone: str
) -> rule_view.Tried:
    trial = await dry_run.try_rule(connection, tenant_id, rule, days=DAYS)
    zone = words.zone(timezone)
    return rule_view.tried(trial, days=DAYS, now=trial.end_at, zone=zone)


def _no_rule() -> HttpError:
    return HttpError(404, "there is no such rule")
