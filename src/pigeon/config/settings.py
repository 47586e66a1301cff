"""`settings.json`: the keys that Pigeon reads, with pi's names and defaults.

A file that cannot be read, or a value of the wrong type, is reported and left out; it never stops the start and is
never written back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from msgspec import Struct

from pigeon.config.json_file import read_json
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent, Json, Record
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

    timeout_ms: int | Absent = ABSENT
    max_retries: int = 0
    max_retry_delay_ms: int = 60000


class RetrySettings(Group, kw_only=True, frozen=True):
    """Retries of a failed answer."""

    enabled: bool = True
    max_retries: int = 3
    base_delay_ms: int = 2000
    max_agent_delay_ms: int = 60000
    provider: ProviderRetrySettings | Absent = ABSENT


class ImageSettings(Group, kw_only=True, frozen=True):
    """What happens to images."""

    auto_resize: bool = True
    block_images: bool = False


class TaskSettings(Group, kw_only=True, frozen=True):
    """The plan that host and model share."""

    todo_clear_delay: float = 60


class Settings(Record, kw_only=True):
    """All keys that Pigeon reads."""

    default_provider: str | Absent = ABSENT
    default_model: str | Absent = ABSENT
    default_thinking_level: ThinkingLevel = "medium"
    model_thinking_levels: dict[str, ThinkingLevel] | Absent = ABSENT
    thinking_budgets: dict[str, int] | Absent = ABSENT
    enabled_models: list[str] | Absent = ABSENT
    steering_mode: QueueMode = "one-at-a-time"
    follow_up_mode: QueueMode = "one-at-a-time"
    interrupt_mode: InterruptMode | Absent = ABSENT
    tool_execution: Literal["ordered", "parallel", "sequential"] = "ordered"
    default_tools: list[str] | Absent = ABSENT
    compaction: CompactionSettings = CompactionSettings()
    retry: RetrySettings = RetrySettings()
    images: ImageSettings = ImageSettings()
    tasks: TaskSettings = TaskSettings()
    keep_provider_keys: bool = False
    shell_path: str | Absent = ABSENT
    shell_command_prefix: str | Absent = ABSENT
    session_dir: str | Absent = ABSENT
    extensions: list[str] | Absent = ABSENT
    skills: list[str] | Absent = ABSENT
    prompts: list[str] | Absent = ABSENT
    default_project_trust: Literal["ask", "always", "never"] = "ask"
    permissions: Json | Absent = ABSENT
    http_idle_timeout_ms: int = 300000
    http_proxy: str | Absent = ABSENT


def read_settings_file(path: str, report: Callable[[str], None]) -> dict[str, Any]:
    """The object in a settings file, as it stands there; empty where the file is missing or cannot be used."""
    try:
        value = read_json(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        report(f"{path} cannot be read: {error.strerror or error}")
        return {}
    except BadRecord as error:
        report(f"{path} is not valid JSON and is ignored: {error}")
        return {}
    if not isinstance(value, dict):
        report(f"{path} must hold a JSON object and is ignored")
        return {}
    return value


def fitting(raw: dict[str, Any], report: Callable[[str], None], kind: type[Struct] = Settings) -> dict[str, Any]:
    """The part of an object that fits, key by key; the rest is reported."""
    kept: dict[str, Any] = {}
    for key, item in raw.items():
        group = _GROUPS.get(key) if kind is Settings else None
        if group is not None and isinstance(item, dict):
            kept[key] = fitting(item, partial(_within, key, report), group)
            continue
        try:
            codec.convert({key: item}, kind)
        except BadRecord as error:
            report(f"{key} is ignored: {error}")
        else:
            kept[key] = item
    return kept


def _within(key: str, report: Callable[[str], None], problem: str) -> None:
    report(f"{key}.{problem}")


_GROUPS: dict[str, type[Group]] = {
    "compaction": CompactionSettings,
    "retry": RetrySettings,
    "images": ImageSettings,
    "tasks": TaskSettings,
}
