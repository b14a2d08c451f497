"""Values of flags that click alone would let through."""

from __future__ import annotations

import click
import pytest
from octavo.flag_types import FiniteRange, ListenAddress


@pytest.mark.parametrize("text", ["nan", "-nan", "inf", "0", "61"])
def test_what_is_no_number_of_the_range_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        FiniteRange(0.001, 60.0).convert(text, None, None)


@pytest.mark.parametrize(
    "text", ["127.0.0.1:0", "0.0.0.0:50061", "[::]:1", "engine-0.engines:65535", "unix:/run/e.sock"]
)
def test_where_a_server_may_listen(text: str) -> None:
    assert ListenAddress().convert(text, None, None) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "127.0.0.1", "a:", ":1", "a:-1", "a:65536", "::1:5", "http://a:1", "unix:"),
        f"unix:/{'a' * 107}",
    ],
)
def test_where_grpc_would_listen_elsewhere_or_not_at_all_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        ListenAddress().convert(text, None, None)
