"""What APIs declare: every reader of these facts finds them here."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from pigeon.providers.api import Api
from pigeon.providers.apis import APIS, find_api
from pigeon.providers.http.recorders import MASK, mask_headers

SERVED = [api for api in APIS.values() if api.adapter]


@pytest.mark.parametrize("api", SERVED, ids=lambda api: api.name)
def test_every_declared_adapter_can_stream_and_convert(api: object) -> None:
    adapter = import_module(api.adapter)  # type: ignore[attr-defined]
    assert callable(adapter.stream)
    assert callable(adapter.convert_ahead)


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("anthropic-messages", "x-api-key"),
        ("google-generative-ai", "x-goog-api-key"),
        ("azure-openai-responses", "api-key"),
    ],
)
def test_a_key_goes_into_the_api_s_own_header_and_a_bearer_token_does_not(name: str, header: str) -> None:
    api = find_api(name)
    assert api.key_headers("k", bearer=False) == {header: "k"}
    assert api.key_headers("k", bearer=True) == {"authorization": "Bearer k"}
    assert api.key_headers("", bearer=False) == {}


@pytest.mark.parametrize("name", ["openai-completions", "openai-responses", "pigeon-post"])
def test_other_apis_take_every_key_as_a_bearer_token(name: str) -> None:
    assert find_api(name).key_headers("k", bearer=False) == {"authorization": "Bearer k"}


def test_an_unknown_api_has_no_adapter_and_the_usual_list_of_models() -> None:
    api = find_api("pigeon-post")
    assert (api.adapter, api.output, api.models_path("http://a")) == ("", None, "/models")


def test_declarations_load_no_adapter() -> None:
    code = "import sys, pigeon.providers.apis; print([name for name in sys.modules if name.endswith('adapter')])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


@pytest.mark.parametrize("api", SERVED, ids=lambda api: api.name)
def test_the_header_of_a_key_is_masked_where_exchanges_are_shown(api: Api) -> None:
    assert set(mask_headers(api.key_headers("sk-secret", bearer=False), str).values()) == {MASK}
