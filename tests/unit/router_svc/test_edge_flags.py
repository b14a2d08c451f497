"""Flags of the edge, from the command line and from the environment."""

from pathlib import Path
from typing import Any

import click
import pytest

from router_svc.edge import EDGE_FLAGS, Edge


def edge(monkeypatch: pytest.MonkeyPatch, *args: str, **environment: str) -> Edge:
    """What the arguments and variables say."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found: list[Edge] = []
    options = [
        click.Option([name], envvar="OCTAVO_" + _variable(name), **settings)
        for name, settings in EDGE_FLAGS
    ]

    def run(**params: Any) -> None:
        found.append(Edge.of(params))

    click.Command("serve", params=options, callback=run).main(args, standalone_mode=False)
    return found[0]


def _variable(name: str) -> str:
    return name.partition("/")[0].lstrip("-").replace("-", "_").upper()


def lets_in(configured: Edge, key: str) -> bool:
    """Whether the key is in use."""
    assert configured.keyring is not None
    return configured.keyring.keys.tenant_of(key.encode()) is not None


def test_by_default_nobody_needs_a_key_and_no_page_may_call(monkeypatch: Any) -> None:
    configured = edge(monkeypatch)

    assert configured.keyring is None
    assert configured.cors is None
    assert configured.middleware() == []


def test_keys_are_repeated_or_separated_by_commas_in_the_environment(monkeypatch: Any) -> None:
    given = edge(monkeypatch, "--api-key", "sk-a", "--api-key", "sk-b,c")
    read = edge(monkeypatch, OCTAVO_API_KEY="sk-a, sk-b,")

    assert [lets_in(given, key) for key in ("sk-a", "sk-b,c", "sk-b")] == [True, True, False]
    assert [lets_in(read, key) for key in ("sk-a", "sk-b", "")] == [True, True, False]


def test_keys_of_flags_and_of_a_file_go_together(monkeypatch: Any, tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("tenants: {acme: [sk-file]}")

    configured = edge(monkeypatch, "--api-key", "sk-flag", OCTAVO_API_KEY_FILE=str(path))

    assert configured.keyring is not None
    assert configured.keyring.keys.tenant_of(b"sk-flag") == "default"
    assert configured.keyring.keys.tenant_of(b"sk-file") == "acme"


@pytest.mark.parametrize(
    ("args", "environment", "words"),
    [
        (["--api-key", ""], {}, "given and empty"),
        ([], {"OCTAVO_API_KEY": ""}, "given and empty"),
        ([], {"OCTAVO_API_KEY": " , "}, "given and empty"),
        (["--api-key", "a b"], {}, "a key of default is empty"),
        (["--api-key-file", "/nowhere/keys.yaml"], {}, "/nowhere/keys.yaml: No such file"),
        (["--allowed-origins", '["a", 1]'], {}, "JSON list of strings"),
        (["--allowed-origins", "[a"], {}, "JSON list of strings"),
        (["--allowed-origins", "app.example"], {}, "as browsers send it"),
        (["--allowed-origins", "https://app.example/"], {}, "without a path"),
        (["--allowed-origins", ""], {}, "as browsers send it"),
        (["--allowed-origins", "*", "--allow-credentials"], {}, "by name"),
    ],
)
def test_a_flag_that_would_open_the_server_by_mistake_stops_it(
    monkeypatch: Any, args: list[str], environment: dict[str, str], words: str
) -> None:
    with pytest.raises(click.ClickException, match=words):
        edge(monkeypatch, *args, **environment)


@pytest.mark.parametrize(
    ("args", "environment"),
    [
        (["--allowed-origins", "https://a", "--allowed-origins", "https://b"], {}),
        (["--allowed-origins", '["https://a", "https://b"]'], {}),
        ([], {"OCTAVO_ALLOWED_ORIGINS": "https://a, https://b"}),
        ([], {"OCTAVO_ALLOWED_ORIGINS": '["https://a", "https://b"]'}),
    ],
)
def test_origins_are_a_list_in_any_of_its_forms(
    monkeypatch: Any, args: list[str], environment: dict[str, str]
) -> None:
    cors = edge(monkeypatch, *args, **environment).cors

    assert cors is not None
    assert (cors.origins, cors.methods) == (("https://a", "https://b"), ("*",))


def test_metrics_can_be_opened(monkeypatch: Any) -> None:
    assert "/metrics" not in edge(monkeypatch).open_paths
    assert "/metrics" in edge(monkeypatch, "--metrics-open").open_paths
