"""The providers and APIs as the tables of docs/models.md, from their declarations. `make docs` runs this."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from protocol_tables import refreshed, table

from pigeon.providers.api import Api
from pigeon.providers.apis import APIS
from pigeon.providers.catalog.built_in import KNOWN

PAGE = Path(__file__).resolve().parent.parent / "docs" / "models.md"
_KEY = "KEY"


def providers_table() -> str:
    """Every provider that Pigeon has data about, in the order in which a default model is looked for."""
    rows = [(f"`{id}`", known.name, f"`{known.keys[0]}`", f"`{known.default}`") for id, known in KNOWN.items()]
    return table(("provider", "name", "variable", "default model"), rows)


def apis_table() -> str:
    """Every API of model servers; those of the demo and of scripts need no server."""
    rows = [(f"`{api.name}`", _headers(api)) for api in APIS.values() if api.adapter]
    return table(("`api`", "headers of each request"), rows)


TABLES: dict[str, Callable[[], str]] = {"providers": providers_table, "apis": apis_table}


def _headers(api: Api) -> str:
    sent = {**api.key_headers(_KEY, bearer=False), **api.headers}
    return ", ".join(f"`{name}: {value}`" for name, value in sent.items())


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text("utf-8"), TABLES), "utf-8")
