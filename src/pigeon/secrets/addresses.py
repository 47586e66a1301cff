"""Keys that are part of addresses: passwords before the host, parameters, and parts of the path.

`Redactor` masks the keys it knows; these functions mask by place, so also keys that are short, common or unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pigeon.secrets.redactor import MASK, SECRET_WORD

_ADDRESS = r"([A-Za-z][A-Za-z0-9+.-]*://)([^\s\"'<>`\\]+)"
# The user and the password; a colon with a number is a port.
_USER_INFO = r"([^/?#@:]*)(?::(?!\d{0,5}[/?#])([^@]*(?:@[^/?#@]*(?=@))*))?@"
_PARAMETER = r"([?&;#])([^=&;#]+)=([^&#]+)"
_BARE_PARAMETER = r"([?&;#])([^=&;#]+)(?=[&;#]|\Z)"
_KEY_NAME = (
    r"(?i)(key|token|secret|password|passwd|pwd|pass|credential|auth|authorization|signature|sig|bearer|jwt|pat)s?\Z"
)
# Parameters that describe a request; in configured addresses, all others count as keys.
# fmt: off
_HARMLESS = frozenset((
    "alt", "api-version", "apiversion", "features", "format", "location", "model", "models", "project", "read_only",
    "readonly", "region", "transport", "v", "version",
))
# fmt: on
_ARGUMENT_NAME = rf"(?i)(?:{SECRET_WORD.removeprefix('(?i)')})(?!.*\b(?:file|path|dir)\Z)|\b(?:pass|pw|pat|jwt)\b"
_NAMED_WORD = r"(?s)(-{0,2}[A-Za-z][\w.-]*)(?:(=|:[ \t]*)(.*))?"
_PLACEHOLDER = r"\*+|<.*>?|\$.*|\{.*|%24.*|xxx*|\.\.\.|…"
_LONG_USER = 16
_RANDOM_PART = r"(?=[^/]*[0-9])(?=[^/]*[A-Za-z])[^/]*[A-Za-z0-9]{16}[^/]*"


def mask_addresses(text: str) -> str:
    """The text with the keys in its addresses masked: passwords, and parameters with the name of a key."""
    return re.sub(_ADDRESS, lambda found: found[1] + _mask_rest(found[2], False), text) if "://" in text else text


def mask_configuration(text: str) -> str:
    """The same for text that shows configured addresses: all parameters but the harmless ones are masked, parts of
    paths that look like keys, and everything else that has the shape of a secret."""
    from pigeon.secrets.shapes import mask_secret_shapes

    if "://" in text:
        text = re.sub(_ADDRESS, lambda found: found[1] + _mask_rest(found[2], True), text)
    data = text.encode("utf-8", "surrogatepass")
    masked = mask_secret_shapes(data)
    return text if masked == data else masked.decode("utf-8", "surrogatepass")


def mask_arguments(words: Sequence[str]) -> Iterator[str]:
    """The words of a command, with the values of options, variables and headers masked that are named like keys."""
    follows_name = False
    for word in words:
        found = re.fullmatch(_NAMED_WORD, word)
        name, sign, value = found.groups() if found is not None else ("", None, "")
        is_named = re.search(_ARGUMENT_NAME, name.replace("_", "-")) is not None
        if follows_name and not word.startswith("-"):
            yield _mask_value(word)
        else:
            yield f"{name}{sign}{_mask_value(value)}" if sign and is_named else word
        follows_name = is_named and word.startswith("-") and not sign


def _mask_rest(rest: str, all_parameters: bool) -> str:
    found = re.match(_USER_INFO, rest)
    shown = ""
    if found is not None:
        user, password = found[1], found[2]
        if password is None and len(user) >= _LONG_USER:
            user = MASK
        elif password and len(user) >= _LONG_USER:
            user, password = MASK, _mask_value(password)
        elif password:
            password = _mask_value(password)
        shown, rest = user + ("" if password is None else f":{password}") + "@", rest[found.end() :]
    path, sign, parameters = re.fullmatch(r"(?s)([^?#;]*)([?#;]?)(.*)", rest).groups()  # type: ignore[union-attr]
    if all_parameters:
        host, *parts = path.split("/")
        path = "/".join([host, *(MASK if re.fullmatch(_RANDOM_PART, part) else part for part in parts)])
    parameters = re.sub(_PARAMETER, lambda one: _mask_parameter(one, all_parameters), sign + parameters)
    if all_parameters:  # a value alone may be a key as well
        parameters = re.sub(_BARE_PARAMETER, _mask_bare_parameter, parameters)
    return shown + path + parameters


def _mask_parameter(found: re.Match[str], all_parameters: bool) -> str:
    sign, name, value = found.groups()
    is_key = name.lower() not in _HARMLESS if all_parameters else re.search(_KEY_NAME, name) is not None
    return f"{sign}{name}={_mask_value(value)}" if is_key else found[0]


def _mask_bare_parameter(found: re.Match[str]) -> str:
    """What stands for a parameter without a value, or for the fragment of an address."""
    sign, value = found.groups()
    return f"{sign}{value if value.lower() in _HARMLESS else _mask_value(value)}"


def _mask_value(value: str) -> str:
    """What stands for a value; a placeholder in an example stays."""
    return value if re.fullmatch(_PLACEHOLDER, value) else MASK
