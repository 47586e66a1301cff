"""The two models that need no key: the demo, and scripts for hosts' tests. They exist only when asked for by name."""

from __future__ import annotations

from pigeon.agent.interfaces import ModelProvider
from pigeon.app.environment import Environment
from pigeon.app.options import AgentOptions
from pigeon.providers.registry import ModelRegistry
from pigeon.wire.model import Model

DEMO = "demo"
SCRIPTED = "scripted"


class Offer:
    """The models that a host can choose: those with credentials, and a built-in one that was asked for."""

    def __init__(self, registry: ModelRegistry, built_in: Model | None) -> None:
        self._registry = registry
        self._built_in = [built_in] if built_in else []

    def available(self) -> list[Model]:
        """Models that can be used now."""
        return [*self._built_in, *self._registry.available()]

    def find(self, provider: str, model_id: str) -> Model | None:
        """One of them."""
        for model in self._built_in:
            if (model.provider, model.id) == (provider, model_id):
                return model
        return self._registry.find(provider, model_id)


def built_in_model(options: AgentOptions, environment: Environment) -> Model | None:
    """The demo or a script, if that is what the options name."""
    asked = f"{options.provider}/{options.model}" if options.provider and options.model else options.model or ""
    if asked in (DEMO, f"{DEMO}/guide") or (options.provider == DEMO and not options.model):
        from pigeon.providers.demo.model import demo_model

        return demo_model()
    if asked.startswith(f"{SCRIPTED}/"):
        from pigeon.providers.scripted.model import scripted_model

        return scripted_model(asked.removeprefix(f"{SCRIPTED}/"), environment.absolute)
    return None


def scripted(environment: Environment) -> ModelProvider:
    """Plays scripts; imported when first needed."""
    from pigeon.providers.scripted.model import ScriptedModel

    return ScriptedModel(environment.absolute)


def demo() -> ModelProvider:
    """The demo; imported when first needed."""
    from pigeon.providers.demo.model import DemoModel

    return DemoModel()
