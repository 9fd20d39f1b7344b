"""What people and programs send and get about alerts."""

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta
from pydantic import Field

from farmiq import api
from farmiq.api import At, Id
from farmiq.cloud import episodes
from farmiq.cloud.alerts import dry_run
from farmiq.cloud.identity import people
from farmiq.messages import edge, ids, kinds
from farmiq.messages.alerts import AlertRuleValues, Baseline, Condition, EndReason, Severity

MAX_ROWS = 1000
EpisodeState = Literal["active", "acknowledged", "resolved", "withdrawn"]
EpisodeSeverity = edge.Severity
Source = Literal["rule", "edge", "camera", "cloud"]


class EpisodeFilter(api.SpanFilter):
    """Which episodes, newest first; the time is the one at which they opened."""

    state: Annotated[
        Literal["open", "active", "acknowledged", "resolved", "withdrawn"] | None,
        Field(description="Only in this state; open is active or acknowledged."),
    ] = None
    severity: Annotated[EpisodeSeverity | None, Field(description="Only of this severity.")] = None
    source: Annotated[Source | None, Field(description="Only from there.")] = None
    rule: Annotated[Id | None, Field(description="Only of this rule.")] = None
    farm: Annotated[Id | None, Field(description="Only this farm's.")] = None
    barn: Annotated[Id | None, Field(description="Only this barn's.")] = None
    device: Annotated[Id | None, Field(description="Only this device's.")] = None
    edge: Annotated[Id | None, Field(description="Only of this edge.")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="At most so many rows.")] = 100
    format: Annotated[api.TableFormat, Field(description="json, csv or parquet.")] = "json"
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
    """`is_whole` is false if there was too much to look at; then episodes may be missing.

    `values_from` is the moment of the oldest value that was looked at: of totals of edges, feed,
    weighings and cameras what was found is kept from the first look on, for a week.
    """

    sentence: str
    begin_at: At
    end_at: At
    series_count: int
    value_count: int
    values_from: At | None
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
