"""The engine's flags: parsed once, handed on to a child process unchanged."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from octavo.flags import engine_args, engine_options, process_options

from engine_svc.config import ConfigError, settings_from


def parse(arguments, env=None):
    """The parameters that a command with all engine flags gets, or the failed result."""
    seen = {}

    @click.command()
    @engine_options
    @process_options
    def command(**params):
        seen.update(params)

    result = CliRunner().invoke(command, arguments, env=env)
    return seen if result.exit_code == 0 else result


def test_defaults_are_those_of_a_small_machine():
    params = parse([])

    assert params["max_num_seqs"] == 32
    assert params["block_size"] == 16
    assert params["enable_prefix_caching"] is True
    assert params["max_model_len"] is None
    assert params["served_model_name"] == ()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--max-model-len=512", "--dtype=half", "--threads=3"],
        ["--quantization=int4", "--kv-cache-dtype=int8", "--no-packed-weights-cache"],
        ["--no-enable-prefix-caching", "--no-enable-chunked-prefill"],
        ["--served-model-name=a b", "--served-model-name=c"],
        ["--kv-cache-memory-bytes=123456789", "--seed=18446744073709551615"],
        ["--served-model-name=-looks-like-a-flag"],
        ['--speculative-config={"method":"ngram","num_speculative_tokens":5}'],
    ],
)
def test_a_child_parses_the_very_same_values(arguments):
    params = parse(arguments)

    assert parse(engine_args(params)) == params


def test_parameters_of_other_commands_are_not_handed_on():
    assert engine_args({"port": 8000, "block_size": 32}) == ["--block-size=32"]


def test_every_flag_has_an_environment_variable_and_the_command_line_wins():
    env = {"OCTAVO_MAX_MODEL_LEN": "77", "OCTAVO_ENABLE_PREFIX_CACHING": "0"}

    assert parse([], env)["max_model_len"] == 77
    assert parse([], env)["enable_prefix_caching"] is False
    assert parse(["--max-model-len=5"], env)["max_model_len"] == 5


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--max-model-length=5"], "--max-model-length"),
        (["--max-num-seqs=0"], "--max-num-seqs"),
        (["--dtype=int3"], "--dtype"),
        (["--quantization=bitsandbytes"], "--quantization"),
        (["--kv-cache-dtype=int4"], "--kv-cache-dtype"),
        (["--target-step-seconds=nan"], "--target-step-seconds"),
        (["--served-model-name="], "--served-model-name"),
        (["--gpu-memory-utilization=0"], "--gpu-memory-utilization"),
        (["--seed=18446744073709551616"], "--seed"),
        (["--block-size=1e9"], "--block-size"),
    ],
)
def test_a_bad_flag_is_an_error_that_names_it(arguments, named):
    result = parse(arguments)

    assert result.exit_code == 2
    assert named in result.output


def test_the_flags_load_without_the_engine():
    code = "import sys, octavo.flags; sys.exit('torch' in sys.modules or 'grpc' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_bad_speculative_config_is_an_error_that_names_the_flag_and_the_key(tmp_path):
    params = parse(['--speculative-config={"method":"ngram"}'])

    with pytest.raises(ConfigError, match=r"--speculative-config.*num_speculative_tokens"):
        settings_from(tmp_path, params).batch.speculation()
