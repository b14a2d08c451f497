"""The `octavo plan` command: finds the model, and has the engine's own arithmetic size it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click
from octavo.cache_dir import default_cache_dir
from octavo.flags import plan_args, plan_options
from octavo.lora_flags import LoraCommand

from router_svc.model_store import DEFAULT_MODEL, ModelNotFoundError, resolve_model


@click.command(cls=LoraCommand)
@click.argument("model", default=DEFAULT_MODEL)
@plan_options
def plan(model: str, **params: Any) -> None:
    """Says what MODEL takes and how many requests fit, before anything is loaded.

    MODEL is what `octavo serve` takes, or a config.json: sizes then follow from that alone. Flags
    are those of `octavo serve`; the exit code is 1 where the model does not fit.
    """
    try:
        path = _find(model)
    except ModelNotFoundError as error:
        raise click.ClickException(str(error)) from error
    params["served_model_name"] = params["served_model_name"] or (model,)
    args = [sys.executable, "-m", "engine_svc.planning", str(path), *plan_args(params)]
    os.execv(sys.executable, args)


def _find(model: str) -> Path:
    """Where files of the model are. Of a hub model, weights are not downloaded for a plan."""
    path = Path(model).expanduser()
    if path.suffix == ".json" and path.is_file():
        return path
    if model.count("/") == 1 and not path.exists() and not model.startswith((".", "/", "~")):
        return _from_hub(model)
    return resolve_model(model, default_cache_dir())


def _from_hub(repo_id: str) -> Path:
    """The model's directory in the local cache, or its configuration from the hub."""
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        directory = Path(snapshot_download(repo_id, local_files_only=True))
        if (directory / "config.json").is_file():
            return directory
    except HFValidationError as error:
        raise ModelNotFoundError(f"{repo_id!r} is not a hub id") from error
    except LocalEntryNotFoundError:
        pass  # nothing of it is there
    try:
        return Path(hf_hub_download(repo_id, "config.json"))
    except OSError as error:  # what the hub's errors are
        raise ModelNotFoundError(
            f"{repo_id!r} is not in the local cache, and its config.json cannot be had: {error}"
        ) from error
