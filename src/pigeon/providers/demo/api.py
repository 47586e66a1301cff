"""The declaration of `demo`, the model that needs no key."""

from __future__ import annotations

from pigeon.providers.api import Api

DEMO = Api(name="demo", takes_any_schema=True)
GUIDE = "guide"  # the id of its only model
