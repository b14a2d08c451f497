"""Puts a model where engines and routers look for it: run once, before any of them starts."""

import sys

from octavo.cache_dir import default_cache_dir
from router_svc.model_store import ModelNotFoundError, resolve_model

try:
    print(resolve_model(sys.argv[1], default_cache_dir()))
except ModelNotFoundError as error:
    sys.exit(str(error))
