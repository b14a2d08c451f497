"""Puts a model where engines and routers look for it: run once, before any of them starts."""

import sys

from octavo.cache_dir import default_cache_dir

from router_svc.model_store import ModelNotFoundError, resolve_model

try:
    sys.stdout.write(f"{resolve_model(sys.argv[1], default_cache_dir())}\n")
except ModelNotFoundError as error:
    sys.exit(str(error))
