"""`settings.json`: the keys that Pigeon reads, with pi's names and defaults.

A file that cannot be read, or a value of the wrong type, is reported and left out; it never stops the start and is
never written back. Keys that no agent of the family knows are reported, too. `layers.py` decides what this means for
the permission rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from msgspec import Struct

from pigeon.config.json_file import is_dangling_link, read_json
from pigeon.system.file_view import LOCAL_FILES, FileView
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent, Json, Record, value_or_default
from pigeon.wire.commands import InterruptMode, QueueMode
from pigeon.wire.errors import BadRecord
from pigeon.wire.model import ThinkingLevel


class Group(Struct, frozen=True, rename="camel"):
    """Settings that belong together."""


class CompactionSettings(Group, kw_only=True, frozen=True):
    """When and how much to summarize."""

    enabled: bool = True
    reserve_tokens: int | Absent = ABSENT
    keep_recent_tokens: int | Absent = ABSENT
    model_overrides: dict[str, dict[str, int]] | Absent = ABSENT


class ProviderRetrySettings(Group, kw_only=True, frozen=True):
    """Retries of one HTTP request, before any stream."""

    timeout_ms: int | Literal["disabled"] | Absent = ABSENT
    max_retries: int = 0
    max_retry_delay_ms: int = 60000


class RetrySettings(Group, kw_only=True, frozen=True):
    """Whether and how often a failed answer is retried, and after which delays."""

    enabled: bool = True
    max_retries: int = 3
    base_delay_ms: int = 2000
    max_agent_delay_ms: int = 60000
    provider: ProviderRetrySettings | Absent = ABSENT


class ImageSettings(Group, kw_only=True, frozen=True):
    """Whether images are resized, and whether they are blocked."""

    auto_resize: bool = True
    block_images: bool = False


class TaskSettings(Group, kw_only=True, frozen=True):
    """The plan that host and model share."""

    todo_clear_delay: float = 60


class ToolSettings(Group, kw_only=True, frozen=True):
    """Questions before tools run. Any value is kept: an unknown one must not count as absent."""

    approval_mode: Json = "yolo"


class ExportSettings(Group, kw_only=True, frozen=True):
    """What an exported page shows."""

    mask_secrets: bool = True


class McpSettings(Group, kw_only=True, frozen=True):
    """How many tokens the tools of servers may take of each prompt before they are deferred."""

    tool_budget: int = 4_000


class AgentSettings(Group, kw_only=True, frozen=True):
    """How deep agents may start other agents, and how many of them run at once."""

    max_depth: int = 1
    max_parallel: int = 8


class JobSettings(Group, kw_only=True, frozen=True):
    """Whether the end of a job in the background starts a run if none is active."""

    start_run: bool = False


class WarmSettings(Group, kw_only=True, frozen=True):
    """After how many minutes without a call a warm parent ends."""

    idle_minutes: float = 30


class UndoSettings(Group, kw_only=True, frozen=True):
    """Whether what the agent does to files can be undone, in how large a folder, and how much is kept for how long."""

    enabled: bool = True
    max_files: int = 200_000
    max_bytes: int = 2_000_000_000
    max_file_bytes: int = 20_000_000
    keep_bytes: int = 5_000_000_000
    keep_days: float = 30


class LoopGuardSettings(Group, kw_only=True, frozen=True):
    """The number of identical tool calls in a row after which the model is warned, and the run ends."""

    warn: int | Absent = ABSENT
    stop: int | Absent = ABSENT


class Settings(Record, kw_only=True):
    """All keys of a settings file that Pigeon reads, with their defaults."""

    default_provider: str | Absent = ABSENT
    default_model: str | Absent = ABSENT
    default_thinking_level: ThinkingLevel = "medium"
    model_thinking_levels: dict[str, ThinkingLevel] | Absent = ABSENT
    thinking_budgets: dict[str, int] | Absent = ABSENT
    enabled_models: list[str] | Absent = ABSENT
    steering_mode: QueueMode = "one-at-a-time"
    follow_up_mode: QueueMode = "one-at-a-time"
    interrupt_mode: InterruptMode | Absent = ABSENT
    tool_execution: Literal["ordered", "declared", "parallel", "sequential"] = "ordered"
    default_tools: list[str] | Absent = ABSENT
    finish_gate: bool | Absent = ABSENT
    compaction: CompactionSettings = CompactionSettings()
    retry: RetrySettings = RetrySettings()
    images: ImageSettings = ImageSettings()
    tasks: TaskSettings = TaskSettings()
    limits: dict[str, Json] | Absent = ABSENT
    loop_guard: LoopGuardSettings = LoopGuardSettings()
    undo: UndoSettings = UndoSettings()
    agents: AgentSettings = AgentSettings()
    jobs: JobSettings = JobSettings()
    export: ExportSettings = ExportSettings()
    mcp: McpSettings = McpSettings()
    warm: WarmSettings = WarmSettings()
    keep_provider_keys: bool = False
    shell_path: str | Absent = ABSENT
    shell_command_prefix: str | Absent = ABSENT
    session_dir: str | Absent = ABSENT
    extensions: list[str] | Absent = ABSENT
    packages: Json = None
    skills: list[str] | dict[str, Json] | Absent = ABSENT
    prompts: list[str] | Absent = ABSENT
    default_project_trust: Literal["ask", "always", "never"] = "ask"
    permissions: Json | Absent = ABSENT
    sandbox: Json | Absent = ABSENT
    tools: ToolSettings = ToolSettings()
    http_idle_timeout_ms: int | Literal["disabled"] = 300000
    http_proxy: str | Absent = ABSENT


def list_skill_paths(settings: Settings) -> list[str]:
    """The places of skills besides the usual ones; older files have them in an object."""
    skills: Json = value_or_default(settings.skills, [])
    if isinstance(skills, dict):
        skills = skills.get("customDirectories")
    return [item for item in skills if isinstance(item, str)] if isinstance(skills, list) else []


def read_settings_file(path: str, report: Callable[[str], None], view: FileView = LOCAL_FILES) -> dict[str, Any] | None:
    """The object in a settings file: empty if there is no file, None if it cannot be used."""
    try:
        value = read_json(path, view=view)
    except FileNotFoundError as error:
        if not is_dangling_link(path, view):
            return {}
        report(f"{path} cannot be read: {error.strerror}(dangling link)")
        return None
    except OSError as error:
        report(f"{path} cannot be read: {error.strerror or error}")
        return None
    except BadRecord as error:
        report(f"{path} is ignored: {error}")
        return None
    if not isinstance(value, dict):
        report(f"{path} must contain a JSON object and is ignored")
        return None
    return value


def select_valid_keys(
    raw: dict[str, Any], report: Callable[[str], None], kind: type[Struct] = Settings, where: str = ""
) -> dict[str, Any]:
    """The valid part of an object, key by key; the rest is reported."""
    kept: dict[str, Any] = {}
    for key, item in raw.items():
        name = f"{where}.{key}" if where else key
        group = GROUPS.get(name)
        if group is not None and isinstance(item, dict):
            kept[key] = select_valid_keys(item, report, group, name)
            continue
        try:
            codec.convert({key: item}, kind)
        except BadRecord as error:
            report(f"{name} is ignored: {error}")
        else:
            kept[key] = item
    known = keys_of(kind)
    if not raw.keys() <= set(known):
        from pigeon.config.known_keys import describe_unknown_keys

        for problem in describe_unknown_keys(list(raw), known, where):
            report(problem)
    return kept


def keys_of(kind: type[Struct]) -> tuple[str, ...]:
    """The keys that are read, in their written form."""
    return kind.__struct_encode_fields__


def _groups_of(kind: type[Struct], above: str = "") -> Iterator[tuple[str, type[Group]]]:
    """The groups among the settings of this kind and of its groups, by their whole names.

    The annotations are read as they are written: to resolve them all would cost milliseconds at every start.
    """
    known = {group.__name__: group for group in Group.__subclasses__()}
    for name, key in zip(kind.__struct_fields__, keys_of(kind), strict=True):
        for word in kind.__annotations__[name].split(" | "):
            if word in known:
                yield f"{above}{key}", known[word]
                yield from _groups_of(known[word], f"{above}{key}.")


GROUPS: dict[str, type[Group]] = dict(_groups_of(Settings))
