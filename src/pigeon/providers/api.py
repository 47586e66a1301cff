"""What an API declares about itself: the one place for facts that requests, structured output and diagnosis share.

Each folder of an API has a module `api.py` with its declaration, which imports nothing heavy; `apis.py` collects them.
The adapter, which builds requests and reads streams, is imported when the first request needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from pigeon.wire.base import Json
from pigeon.wire.model import Model

STRING_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)  # supported by servers with structured output


class OutputField(Struct, frozen=True, kw_only=True):
    """The field through which an API is asked for JSON of a schema."""

    is_known_for: Callable[[Model, bool], bool]
    """Whether a model has it, also beside tools if that is asked; the compat flag overrides it."""
    takes: Callable[[str, Json], bool]
    """Whether the server takes a keyword of JSON Schema with this value, apart from those that all servers take."""
    accepts: Callable[[dict[str, Any]], bool] = lambda _: True
    """Whether the server accepts the schema as a whole."""
    strict: bool = True
    """Whether all keys of objects have to be required."""


class Api(Struct, frozen=True, kw_only=True):
    """The declaration of one API that model servers speak, and of its adapter."""

    name: str
    adapter: str = ""
    """The module with `stream` and `convert_ahead`; empty for models that need no server."""
    headers: dict[str, str] = field(default_factory=dict)
    """What every request says."""
    key_header: str = ""
    """The header that carries a key; a bearer token, or any key if this is empty, goes into `authorization`."""
    models_path: Callable[[str], str] = lambda _: "/models"
    """Where a server lists its models, behind its address."""
    output: OutputField | None = None
    takes_any_schema: bool = False
    """Whether the model answers in the form of any schema without being asked by a field."""

    def key_headers(self, key: str, bearer: bool) -> dict[str, str]:
        """The header that authenticates; empty without a key."""
        if not key:
            return {}
        is_own = self.key_header and not bearer
        return {self.key_header: key} if is_own else {"authorization": f"Bearer {key}"}


def is_served_by(model: Model, domain: str) -> bool:
    """Whether the server of a model belongs to a domain."""
    from urllib.parse import urlsplit

    host = (urlsplit(model.base_url).hostname or "").lower()
    return host == domain or host.endswith("." + domain)


def subschemas_of(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The direct subschemas of a schema that is sent in the field of an API."""
    items = [schema["items"]] if "items" in schema else []
    return [*schema.get("properties", {}).values(), *items, *schema.get("anyOf", [])]


def property_names_in(schema: dict[str, Any]) -> list[str]:
    """The keys of all objects in such a schema."""
    names = list(schema.get("properties", {}))
    for part in subschemas_of(schema):
        names += property_names_in(part)
    return names
