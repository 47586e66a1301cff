"""Reads the built-in catalogue, a provider at a time."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from pigeon.providers.catalog.known import KNOWN
from pigeon.wire import codec
from pigeon.wire.model import Model

DATA = os.path.join(os.path.dirname(__file__), "data")


class BuiltInCatalog:
    """The facts that come with Pigeon."""

    def __init__(self, folder: str = DATA) -> None:
        self._folder = folder
        self._read: dict[str, list[Model]] = {}

    def providers(self) -> list[str]:
        """All provider ids, in the order of preference."""
        return list(KNOWN)

    def models(self, provider: str) -> list[Model]:
        """The models of one provider; none for an unknown one."""
        if provider not in self._read:
            self._read[provider] = self._load(provider) if provider in KNOWN else []
        return self._read[provider]

    def _load(self, provider: str) -> list[Model]:
        try:
            with open(os.path.join(self._folder, f"{provider}.json"), "rb") as file:
                data: dict[str, Any] = codec.decode(file.read())
        except FileNotFoundError:
            return []
        shared = {"provider": provider, **data.get("shared", {})}
        return [msgspec.convert({**shared, **entry}, Model) for entry in data["models"]]
