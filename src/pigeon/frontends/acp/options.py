"""What a person can choose for a session in the editor: the permission mode, the model, and how much it thinks."""

from __future__ import annotations

from pigeon.frontends.acp.editions.edition import ConfigOption, OptionChoice
from pigeon.frontends.acp.rpc_errors import bad_params_error
from pigeon.sdk.conversation import Conversation
from pigeon.wire.answers import Permissions, State
from pigeon.wire.choices import ApprovalMode
from pigeon.wire.errors import Refusal
from pigeon.wire.model import LEVELS, Model

MODE, MODEL, THINKING = "mode", "model", "thought_level"
# What is shown of each, in the order of `APPROVAL_MODES`.
MODES: dict[ApprovalMode, tuple[str, str]] = {
    "plan": ("Plan", "The agent reads and proposes a plan; nothing is changed until you accept it"),
    "always-ask": ("Ask always", "Asks before every change, command and tool that does more than read"),
    "write": ("Ask before commands", "Reads and changes files without asking; asks before commands and other tools"),
    "yolo": ("Do not ask", "Asks only where the permission rules of your settings say so"),
}


class SessionOptions:
    """The options of one conversation; remembers what was read last, to detect changes."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._last: list[ConfigOption] = []

    async def read(self) -> list[ConfigOption]:
        conversation = self._conversation
        state = await conversation.get_state()
        models = (await conversation.get_available_models()).models
        levels = (await conversation.get_available_thinking_levels()).levels
        permissions = await conversation.get_permissions()
        self._last = [
            _make_mode_option(permissions),
            _make_model_option(state, models),
            *_make_thinking_options(state, levels),
        ]
        return self._last

    async def read_changes(self) -> tuple[list[ConfigOption], bool] | None:
        """The options, and whether the mode changed; None if nothing has changed since the last read."""
        before = self._last
        now = await self.read()
        return None if now == before else (now, _value_of(now, MODE) != _value_of(before, MODE))

    async def set_value(self, id: str, value: object) -> list[ConfigOption]:
        """Choose a value; raises `RpcError`, and changes nothing, if it is not offered."""
        options = await self.read()
        option = next((one for one in options if one.id == id), None)
        if option is None:
            raise bad_params_error(f'There is no option "{id}" (known: {", ".join(one.id for one in options)})')
        if not isinstance(value, str) or value not in [choice.value for choice in option.choices]:
            shown = ", ".join(choice.value for choice in option.choices[:20])
            raise bad_params_error(
                f'"{id}" cannot be {value!r} (offered: {shown}{", ..." if len(option.choices) > 20 else ""})'
            )
        try:
            await self._apply(id, value)
        except Refusal as refusal:
            raise bad_params_error(str(refusal)) from None
        return await self.read()

    async def _apply(self, id: str, value: str) -> None:
        if id == MODE:
            await self._conversation.set_approval_mode(value)  # type: ignore[arg-type]
        elif id == MODEL:
            provider, _, model_id = value.partition("/")
            await self._conversation.set_model(provider, model_id)
        else:
            await self._conversation.set_thinking_level(value)  # type: ignore[arg-type]


def _value_of(options: list[ConfigOption], id: str) -> str | None:
    return next((option.current for option in options if option.id == id), None)


def _make_mode_option(permissions: Permissions) -> ConfigOption:
    """Modes that are less strict than the settings are not offered: choosing one would change nothing."""
    names = list(MODES)
    floor = min(names.index(source.approval_mode) for source in (permissions.user, permissions.project))
    offered = names[: floor + 1]
    return ConfigOption(
        id=MODE,
        name="Permission mode",
        description="Which tool calls need approval",
        category="mode",
        current=permissions.approval_mode,
        choices=[OptionChoice(name, *MODES[name]) for name in offered],
    )


def _make_model_option(state: State, models: list[Model]) -> ConfigOption:
    current = state.model
    if current is not None and all(model.reference != current.reference for model in models):
        models = [current, *models]
    return ConfigOption(
        id=MODEL,
        name="Model",
        description="The model that answers",
        category="model",
        current="" if current is None else current.reference,
        choices=[OptionChoice(model.reference, model.name, model.reference) for model in models],
    )


def _make_thinking_options(state: State, levels: list[str]) -> list[ConfigOption]:
    """Nothing for a model that does not think."""
    if len(levels) < 2:
        return []
    return [
        ConfigOption(
            id=THINKING,
            name="Thinking",
            description="How much the model thinks before it answers",
            category="thought_level",
            current=state.thinking_level,
            choices=[OptionChoice(level, level.capitalize()) for level in LEVELS if level in levels],
        )
    ]
