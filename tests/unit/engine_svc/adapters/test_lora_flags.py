"""Flags of adapters: vLLM's names and forms, handed on to a child process unchanged."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from octavo.flags import engine_args, engine_options, process_options
from octavo.lora_flags import LoraCommand

from engine_svc.adapters.config import AdapterConfig, LoraModule, check_name
from engine_svc.config import ConfigError, settings_from


def parse(arguments, env=None):
    """The parameters of a command that takes a model and an engine's flags."""
    seen = {}

    @click.command(cls=LoraCommand)
    @click.argument("model", default="tiny")
    @engine_options
    @process_options
    def command(**params):
        seen.update(params)

    result = CliRunner().invoke(command, arguments, env=env)
    assert result.exit_code == 0, result.output
    return seen


def adapters(*arguments, env=None) -> AdapterConfig:
    return settings_from("tiny", parse(["--enable-lora", *arguments], env)).adapters


def test_an_engine_takes_no_adapters_unless_it_is_told_to():
    assert not settings_from("tiny", parse([])).adapters.enabled
    assert adapters() == AdapterConfig(num_slots=8)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--lora-modules", "a=/x", "b=y/z"],
        ["--lora-modules=a=/x", "--lora-modules", "b=y/z"],
        ["--lora-modules", '{"name": "a", "path": "/x"}', "b=y/z", "--max-loras=8"],
        ["--lora-modules", "a=/x", '{"name":"b","path":"y/z","base_model_name":"m"}'],
    ],
)
def test_modules_are_given_in_all_of_vllm_s_forms(arguments):
    found = adapters(*arguments)

    wanted = [LoraModule("a", Path("/x")), LoraModule("b", Path("y/z"))]
    assert list(found.modules) == wanted


def test_what_follows_the_modules_is_parsed_as_ever():
    params = parse(["--lora-modules", "a=/x", "b=/y", "model", "--max-loras", "3"])

    assert params["lora_modules"] == ("a=/x", "b=/y")
    assert (params["model"], params["max_loras"]) == ("model", 3)


def test_modules_come_from_a_variable_too():
    env = {"OCTAVO_LORA_MODULES": 'a=/x {"name": "b", "path": "/y"}', "OCTAVO_MAX_LORAS": "3"}

    found = adapters(env=env)

    assert [module.name for module in found.modules] == ["a", "b"]
    assert found.num_slots == 3


def test_a_child_parses_the_same_modules():
    params = parse(["--enable-lora", "--lora-modules", "a=/x", '{"name": "b", "path": "/y y"}'])

    assert parse(engine_args(params)) == params


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--lora-modules", "a"], "must be NAME=PATH"),
        (["--lora-modules", "a="], "must be NAME=PATH"),
        (["--lora-modules", "=/x"], "between 1 and 512 characters"),
        (["--lora-modules", "a,b=/x"], "commas"),
        (["--lora-modules", "{"], "--lora-modules {"),
        (["--lora-modules", '{"name": "a"}'], "needs a name and a path"),
        (["--lora-modules", '{"name": "a", "path": "/x", "rank": 3}'], "unknown keys rank"),
        (["--lora-modules", "a=/x", "a=/y"], "'a' twice"),
        (["--lora-modules", "a=/x", "b=/y", "--max-loras=1"], "more than --max-loras 1"),
        (["--lora-dir", "/absent"], "--lora-dir /absent is not a directory"),
        (["--no-enable-lora", "--lora-modules", "a=/x"], "--lora-modules needs --enable-lora"),
        (["--no-enable-lora", "--lora-dir", "/tmp"], "--lora-dir needs --enable-lora"),
    ],
)
def test_flags_that_do_not_go_together_are_refused_by_name(arguments, named):
    with pytest.raises(ConfigError) as error:
        adapters(*arguments)

    assert named in str(error.value)


@pytest.mark.parametrize("name", ["", "x" * 513, "a\nb", "a,b", " a", "served"])
def test_names_that_no_adapter_may_have(name):
    with pytest.raises(ValueError, match=r"must have|characters|the model itself"):
        check_name(name, ("served",))
