"""`models.json`: the user's own providers and models, in pi's format; or `models.yml`, in oh-my-pi's.

Comments and trailing commas are tolerated in JSON. The result is plain data with the names of the file, checked so that
`providers/custom_models` need not check types again. An invalid file counts as empty; the error is kept as one sentence
that names the field, and never stops the start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from pigeon.config.json_file import LARGEST, decode_with_comments, is_dangling_link
from pigeon.system.files import read_whole
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Absent, Record
from pigeon.wire.errors import BadRecord
from pigeon.wire.model import ModelCost, Number

_SAYS_SOMETHING = ("baseUrl", "headers", "compat", "modelOverrides", "models", "apiKey", "oauth", "authHeader")
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
OH_MY_PI_NAMES = ("models.yml", "models.yaml")
_POSITIVE = ("contextWindow", "maxTokens")


class _CostPatch(Record, kw_only=True):
    input: Number | Absent = ABSENT
    output: Number | Absent = ABSENT
    cache_read: Number | Absent = ABSENT
    cache_write: Number | Absent = ABSENT


class _Patch(Record, kw_only=True):
    name: str | Absent = ABSENT
    reasoning: bool | Absent = ABSENT
    thinking_level_map: dict[str, str | None] | Absent = ABSENT
    input: list[str] | Absent = ABSENT
    input_limits: dict[str, Any] | Absent = ABSENT
    prompt_cache: dict[str, Any] | Absent = ABSENT
    context_window: int | Absent = ABSENT
    max_tokens: int | Absent = ABSENT
    sampling_params: dict[str, Any] | Absent = ABSENT
    sampling_params_by_thinking_level: dict[str, dict[str, Any]] | Absent = ABSENT
    headers: dict[str, str | None] | Absent = ABSENT
    compat: dict[str, Any] | Absent = ABSENT
    cost: _CostPatch | Absent = ABSENT


class _Model(_Patch, kw_only=True):
    id: str
    api: str | Absent = ABSENT
    base_url: str | Absent = ABSENT
    cost: ModelCost | Absent = ABSENT  # type: ignore[assignment]


class _Provider(Record, kw_only=True):
    name: str | Absent = ABSENT
    base_url: str | Absent = ABSENT
    api: str | Absent = ABSENT
    api_key: str | Absent = ABSENT
    auth_header: bool | Absent = ABSENT
    headers: dict[str, str | None] | Absent = ABSENT
    compat: dict[str, Any] | Absent = ABSENT


class ModelsFile(Struct, frozen=True):
    """The contents of the file by provider id; `problem` is set if it could not be used, `notes` tell of parts that
    have no effect."""

    providers: dict[str, dict[str, Any]] = field(default_factory=dict)
    problem: str | None = None
    notes: tuple[str, ...] = ()


def find_models_file(folder: str) -> str:
    """The file of an agent's folder: oh-my-pi's if there is one, which does not read another beside it either."""
    names = (os.path.join(folder, name) for name in OH_MY_PI_NAMES)
    return next(filter(os.path.lexists, names), os.path.join(folder, "models.json"))


def read_models_file(path: str, variables: Mapping[str, str] = NO_VARIABLES) -> ModelsFile:
    """The file at this path; a file that does not exist is empty. In oh-my-pi's, a key may be the bare name of one of
    the variables."""
    try:
        data = read_whole(path, LARGEST)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not is_dangling_link(path):
            return ModelsFile()
        return ModelsFile(problem=f"{path}: cannot be read ({error.strerror or error}); its models are ignored")
    return parse_models_file(data, path, variables)


def parse_models_file(
    data: bytes, path: str = "models.json", variables: Mapping[str, str] = NO_VARIABLES
) -> ModelsFile:
    """The same from bytes; the name of the path says in which format they are."""
    notes: list[str] = []
    try:
        if path.endswith(OH_MY_PI_NAMES):
            from pigeon.config.oh_my_pi import convert_providers
            from pigeon.config.yaml_reading import decode_yaml

            contents = convert_providers(decode_yaml(data), variables, notes.append)
        else:
            contents = decode_with_comments(data, may_be_blank=True)
        providers = _check_providers(contents)
    except BadRecord as error:
        return ModelsFile(problem=f"{path}: {error}; its models are ignored until this is fixed")
    return ModelsFile(providers, notes=tuple(f"{path}: {note}" for note in notes))


def _check_providers(value: Any) -> dict[str, dict[str, Any]]:
    providers = _require_object(value, "the file").get("providers", {})
    out: dict[str, dict[str, Any]] = {}
    for name, entry in _require_object(providers, 'field "providers"').items():
        out[name] = _check_provider(_require_object(entry, f'field "providers.{name}"'), f"providers.{name}")
    return out


def _check_provider(entry: dict[str, Any], where: str) -> dict[str, Any]:
    present = _without_nulls(entry)
    if not any(key in present for key in _SAYS_SOMETHING):
        raise BadRecord(f'field "{where}" must set at least one of {", ".join(_SAYS_SOMETHING)}')
    _check_fields(present, _Provider, where)
    models = present.get("models", [])
    if not isinstance(models, list):
        raise BadRecord(f'field "{where}.models" must be an array')
    overrides = _require_object(present.get("modelOverrides", {}), f'field "{where}.modelOverrides"')
    return {
        **present,
        "models": [_check_model(model, _Model, f"{where}.models[{index}]") for index, model in enumerate(models)],
        "modelOverrides": {
            key: _check_model(patch, _Patch, f"{where}.modelOverrides.{key}") for key, patch in overrides.items()
        },
    }


def _check_model(entry: Any, kind: type[_Patch], where: str) -> dict[str, Any]:
    present = _without_nulls(_require_object(entry, f'field "{where}"'))
    _check_fields(present, kind, where)
    for key in _POSITIVE:
        if key in present and present[key] <= 0:
            raise BadRecord(f'field "{where}.{key}" must be greater than 0')
    if kind is _Model and not present["id"].strip():
        raise BadRecord(f'field "{where}.id" must not be empty')
    return present


def _check_fields(value: dict[str, Any], kind: type[Record], where: str) -> None:
    try:
        codec.convert(value, kind)
    except BadRecord as error:
        raise BadRecord(str(error).replace('field "', f'field "{where}.', 1)) from None


def _require_object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRecord(f"{what} must be an object")
    return value


def _without_nulls(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if value is not None}
