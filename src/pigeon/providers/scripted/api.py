"""The declaration of `scripted`, whose models are script files."""

from __future__ import annotations

from pigeon.providers.api import Api

SCRIPTED = Api(name="scripted")
