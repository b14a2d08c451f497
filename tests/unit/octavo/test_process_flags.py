"""Flags of a process that is an engine, on their way to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from octavo.flags import process_args, process_options, without_process_variables

_COMMAND = process_options(click.command()(lambda: None))


def _parsed(args: list[str]) -> dict[str, Any]:
    return _COMMAND.make_context("engine", args).params


def test_arguments_mean_what_was_parsed() -> None:
    params = _parsed(
        ["--listen=unix:/e.sock", "--ssl-certfile=c.pem", "--ssl-cert-reqs=2", "--ssl-ca-certs=a"]
    )

    assert _parsed(process_args(params)) == params
    assert params["ssl_certfile"] == Path("c.pem")
    assert params["ssl_keyfile"] is None


@pytest.mark.parametrize("flag", ["--listen=127.0.0.1", "--ssl-certfile="])
def test_a_bad_value_is_an_error_that_names_its_flag(flag: str) -> None:
    with pytest.raises(click.BadParameter) as error:
        _parsed([flag])

    assert flag.partition("=")[0] in error.value.format_message()


def test_variables_meant_for_a_router_do_not_reach_its_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"OCTAVO_SSL_CERTFILE": "router.pem", "OCTAVO_LISTEN": "x:1", "OCTAVO_DTYPE": "float32"}

    left = without_process_variables(given)

    assert left == {"OCTAVO_DTYPE": "float32"}
    monkeypatch.setenv("OCTAVO_SSL_CERTFILE", "router.pem")  # what would happen otherwise
    assert _parsed([])["ssl_certfile"] == Path("router.pem")
