"""Keys of a settings file that Pigeon does not read: which are mistakes, and the probably intended keys.

Settings files are shared with other agents of the family, so their keys are not mistakes. Everything else is reported
with the nearest known key. `find_misnamed_rules_key` is for the one dangerous mistake: permission rules under another
name, which would be ignored. Only imported for a file with a key that `settings.py` does not declare.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pigeon.wire.choices import VERDICTS

# What other agents of the family read: at the top of their settings, and in the groups that Pigeon reads as well.
_AT_THE_TOP = """
    $schema ask astEdit astGrep async autoResume autocompleteMaxVisible bash bashInterceptor branchSummary browser
    cacheWarming calc checkpoint clearOnShrink codemode collapseChangelog colorBlindMode commands commit completion
    contextPromotion cycleOrder debug dev deviceId disabledExtensions disabledProviders display doubleEscapeAction edit
    editorPaddingX enableAnalytics enableInstallTelemetry enableSkillCommands env exa extensionChangelogVersions
    externalEditor fetch find fullscreenCopyOnSelect fullscreenExitOutput fullscreenScrollbar
    fullscreenWheelScrollLines git github grep hideThinkingBlock inspect_image keybindings lastChangelogVersion lsp
    markdown marketplace mcp memories minP modelProviderOrder modelRoles modelTags notebook notifications npmCommand
    outputPad presencePenalty providers python queueMode quietStartup read readHashLines readLineNumbers
    renderMermaid repeatToolDescriptions repetitionPenalty secrets selfUpdateCommand serviceTier
    sessionShareDestination showCacheMissNotices showHardwareCursor ssh startup statusLine stt symbolPreset task
    temperature terminal theme themes todo todoCompletion tools topK topP trackingId transport treeFilterMode ttsr tui
    tuiMode voice warnings web_search websocketConnectTimeoutMs websockets
"""
_IN_COMPACTION = """
    autoContinue handoffSaveToDisk idleEnabled idleThresholdTokens idleTimeoutSeconds remoteEnabled remoteEndpoint
    strategy thresholdPercent thresholdTokens
"""
_IN_TOOLS = """
    approval artifactHeadBytes artifactSpillThreshold artifactTailBytes artifactTailLines discoveryMode
    essentialOverride intentTracing maxTimeout outputMaxColumns
"""
_IN_MCP = """
    discoveryDefaultServers discoveryMode enableProjectConfig notificationDebounceMs notifications
    renderMarkdownResults startupTimeoutMs
"""
_IN_RETRY = "fallbackChains fallbackRevertPolicy maxDelayMs"
_OF_OTHERS = {
    "": frozenset(_AT_THE_TOP.split()),
    "compaction": frozenset(_IN_COMPACTION.split()),
    "mcp": frozenset(_IN_MCP.split()),
    "retry": frozenset(_IN_RETRY.split()),
    "tools": frozenset(_IN_TOOLS.split()),
}
PERMISSIONS = "permissions"
APPROVAL = "approvalMode"
_NEAR = 0.75
_MOST_REPORTED = 20
_MOST_LOOKED_AT = 1000
_LONGEST_KEY = 80


def describe_unknown_keys(keys: Sequence[str], known: Sequence[str], group: str = "") -> list[str]:
    """A sentence for each key that no agent of the family knows, with the nearest that Pigeon does."""
    others = _OF_OTHERS.get(group, frozenset())
    unknown = [key for key in keys if key not in known and key not in others]
    shown = unknown[:_MOST_REPORTED]
    said = [_describe_key(f"{group}.{key}" if group else key, _nearest_key(key, known), group) for key in shown]
    more = len(unknown) - len(shown)
    return [*said, f"{more} more keys are unknown"] if more else said


def find_misnamed_rules_key(raw: Mapping[str, Any], known: Sequence[str], group: str = "") -> tuple[str, str] | None:
    """An unread key that looks as if it contains permission rules or an approval mode, and its right name; None if
    there is none. If there are too many keys, the one after the last that is checked represents them all."""
    for count, (name, value) in enumerate(_unread_items(raw, known, group)):
        meant = _guess_rules_key(name, value) if count < _MOST_LOOKED_AT else PERMISSIONS
        if meant is not None:
            return name, meant
    return None


def _unread_items(raw: Mapping[str, Any], known: Sequence[str], group: str) -> Iterator[tuple[str, Any]]:
    """The unread items of a file or of one of its groups, and those directly inside them."""
    for key, value in raw.items():
        if key in known or (key in _OF_OTHERS[group] and not isinstance(value, list)):
            continue
        yield key, value
        if isinstance(value, dict):
            yield from value.items()


def _guess_rules_key(key: str, value: Any) -> str | None:
    plain = _normalize_key(key)
    if plain in VERDICTS:
        return f"{PERMISSIONS}.{plain}" if isinstance(value, (list, str)) else None
    if "permission" in plain or _likeness(plain, PERMISSIONS) >= _NEAR:
        return PERMISSIONS
    return f"tools.{APPROVAL}" if _likeness(plain, APPROVAL.lower()) >= _NEAR else None


def _nearest_key(key: str, known: Sequence[str]) -> str | None:
    plain = _normalize_key(key)
    best = max(known, key=lambda one: _likeness(plain, one.lower()), default=None)
    return best if best is not None and _likeness(plain, best.lower()) >= _NEAR else None


def _likeness(one: str, other: str) -> float:
    from difflib import SequenceMatcher

    return SequenceMatcher(None, one[:_LONGEST_KEY], other, autojunk=False).ratio()


def _normalize_key(key: str) -> str:
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", key[:_LONGEST_KEY])).lower()


def _describe_key(key: str, near: str | None, group: str) -> str:
    shown = key if len(key) <= _LONGEST_KEY else key[:_LONGEST_KEY] + "…"
    meant = f'; did you mean "{group}.{near}"?' if group and near else f'; did you mean "{near}"?' if near else ""
    return f"unknown key {shown!r} is ignored{meant}"
