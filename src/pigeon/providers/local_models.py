"""Models that need no key and no network: the demo, scripts for the tests of hosts, and recordings.

They only exist if they are named; their providers are imported with the first request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pigeon.agent.interfaces import ModelProvider
from pigeon.providers.demo.api import DEMO, GUIDE
from pigeon.providers.gateway import ProviderFactory
from pigeon.providers.registry import ModelRegistry
from pigeon.providers.scripted.api import SCRIPTED
from pigeon.wire.model import Model

RECORDED = "recorded"
# Prefixes of models that are files on this machine.
FILE_MODELS = (f"{SCRIPTED.name}/", f"{RECORDED}/")


class AvailableModels:
    """The models that a host can choose: those with credentials, and a requested built-in one.

    The demo can always be chosen: it is found by its name even if it is not listed.
    """

    def __init__(self, registry: ModelRegistry, built_in: Model | None) -> None:
        self._registry = registry
        self._built_in = [built_in] if built_in else []

    def list_available(self) -> list[Model]:
        return [*self._built_in, *self._registry.list_available()]

    def find_usable(self, provider: str, model_id: str) -> Model | None:
        for model in self._built_in:
            if (model.provider, model.id) == (provider, model_id):
                return model
        if (provider, model_id) == (DEMO.name, GUIDE):
            from pigeon.providers.demo.model import make_demo_model

            return make_demo_model()
        return self._registry.find_usable(provider, model_id)


class RecordedCatalog:
    """The models that a recording names, in place of the built-in ones."""

    def __init__(self, models: Sequence[Model]) -> None:
        self._models: dict[str, list[Model]] = {}
        for model in models:
            self._models.setdefault(model.provider, []).append(model)

    def providers(self) -> list[str]:
        return list(self._models)

    def models(self, provider: str) -> list[Model]:
        return self._models.get(provider, [])


def find_local_model(asked: str, absolute: Callable[[str], str]) -> Model | None:
    """The demo or a script, if that is requested; `absolute` resolves the path of a script."""
    if asked in (DEMO.name, f"{DEMO.name}/{GUIDE}"):
        from pigeon.providers.demo.model import make_demo_model

        return make_demo_model()
    if asked.startswith(f"{SCRIPTED.name}/"):
        from pigeon.providers.scripted.model import make_scripted_model

        return make_scripted_model(asked.removeprefix(f"{SCRIPTED.name}/"), absolute)
    return None


def list_local_providers(absolute: Callable[[str], str]) -> dict[str, ProviderFactory]:
    """The providers of the demo and of scripts, by name."""
    return {SCRIPTED.name: partial(_make_scripted, absolute), DEMO.name: _make_demo}


def _make_scripted(absolute: Callable[[str], str]) -> ModelProvider:
    from pigeon.providers.scripted.model import ScriptedModel

    return ScriptedModel(absolute)


def _make_demo() -> ModelProvider:
    from pigeon.providers.demo.model import DemoModel

    return DemoModel()
