"""The few forms that the dashboard's PromQL takes.

Engines' series have model_name and engine as labels; the routers' have target, the address at which
an engine is reached. `namespace` comes from Kubernetes; without it the variable's "All" matches
series that have no such label.
"""

from __future__ import annotations

_ROUTERS = 'namespace=~"$namespace"'
_ENGINES = f'{_ROUTERS},model_name=~"$model_name",engine=~"$engine"'


def engines(metric: str, more: str = "") -> str:
    """The chosen engines' series of a metric; `more` begins with a comma."""
    return f"{metric}{{{_ENGINES}{more}}}"


def routers(metric: str, more: str = "") -> str:
    """The routers' series of a metric; `more` begins with a comma."""
    return f"{metric}{{{_ROUTERS}{more}}}"


def rate(series: str) -> str:
    """By how much counters grow in a second."""
    return f"rate({series}[$__rate_interval])"


def increase(series: str) -> str:
    """By how much counters have grown between two points of the plot."""
    return f"increase({series}[$__rate_interval])"


def total(series: str, *by: str) -> str:
    """The sum of series, or a sum for each value of the labels `by`."""
    return f"sum by ({', '.join(by)}) ({series})" if by else f"sum({series})"


def share(part: str, whole: str) -> str:
    """A part of a whole, 0 to 1; nothing while there is no whole."""
    return f"{part} / ({whole} > 0)"


def per(parts: str, one: str) -> str:
    """Each of several series for one of what a single series counts."""
    return f"{parts} / on () group_left () ({one} > 0)"


def quantile(level: float, buckets: str) -> str:
    """A quantile over the buckets of all series of a histogram."""
    return f"histogram_quantile({level}, {total(rate(buckets), 'le')})"
