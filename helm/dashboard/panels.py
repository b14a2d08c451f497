"""How panels look: a number, lines over time, a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import table as tables
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    GraphGradientMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DataTransformerConfig,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

DATA_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")

# Grafana's names of units.
SECONDS, SHARE, COUNT, PER_SECOND = "s", "percentunit", "short", "cps"
TOKENS_PER_SECOND, REQUESTS_PER_SECOND = "suffix: tok/s", "reqps"


@dataclass(frozen=True)
class Line:
    """A query, and how its series are named; {{label}} stands for a label's value."""

    expr: str
    legend: str


@dataclass(frozen=True)
class Limit:
    """From `value` on a number is shown in `color`."""

    value: float
    color: str


def number(title: str, text: str, expr: str, unit: str, limits: Sequence[Limit] = ()) -> stat.Panel:
    """One number that says how it stands, on a green ground until a limit is reached."""
    steps = [Threshold(value=None, color="green"), *(Threshold(x.value, x.color) for x in limits)]
    return (
        stat.Panel()
        .title(title)
        .description(text)
        .datasource(DATA_SOURCE)
        .span(6)
        .height(4)
        .unit(unit)
        .no_value("–")
        .thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        .color_mode(BigValueColorMode.BACKGROUND)
        .graph_mode(BigValueGraphMode.AREA)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_query(Line(expr, title), "A"))
    )


def plot(
    title: str, text: str, unit: str, *lines: Line, width: int = 8, stacked: bool = False
) -> timeseries.Panel:
    """Lines over time, from 0; `width` of 24 columns."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(text)
        .datasource(DATA_SOURCE)
        .span(width)
        .height(8)
        .unit(unit)
        .min(0)
        .show_points(VisibilityMode.NEVER)
        .line_width(1)
        .fill_opacity(40 if stacked else 8)
        .gradient_mode(GraphGradientMode.OPACITY)
        .tooltip(
            common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
        )
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
    )
    if unit == SHARE:
        panel = panel.axis_soft_max(1)
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    for index, line in enumerate(lines):
        panel = panel.with_target(_query(line, "ABCDEFGH"[index]))
    return panel


def table(title: str, text: str, expr: str, hidden: Sequence[str]) -> tables.Panel:
    """The labels of an expression's series as they are now, over the whole width."""
    columns = {"excludeByName": dict.fromkeys(hidden, True)}
    return (
        tables.Panel()
        .title(title)
        .description(text)
        .datasource(DATA_SOURCE)
        .span(24)
        .height(6)
        .with_transformation(DataTransformerConfig(id_val="organize", options=columns))
        .with_target(_query(Line(expr, title), "A").instant().format(PromQueryFormat.TABLE))
    )


def _query(line: Line, name: str) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery()
        .datasource(DATA_SOURCE)
        .expr(line.expr)
        .legend_format(line.legend)
        .range()
        .ref_id(name)
    )
