"""The YAML head of a Markdown file."""

from __future__ import annotations

from typing import Any

FENCE = "---"


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """The head as a mapping, and the body; a head that is not valid YAML counts as empty."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if not text.startswith(FENCE + "\n"):
        return {}, text
    head, found, body = text[len(FENCE) + 1 :].partition(f"\n{FENCE}")
    if not found or (body and not body.startswith("\n")):
        return {}, text
    return _parsed(head), body.removeprefix("\n")


def _parsed(head: str) -> dict[str, Any]:
    import yaml

    try:
        value = yaml.load(head, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return {}
    return value if isinstance(value, dict) else {}
