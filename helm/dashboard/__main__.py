"""Writes helm/files/octavo-dashboard.json."""

from __future__ import annotations

from helm.dashboard.board import FILE, as_json

FILE.write_text(as_json(), encoding="utf-8")
