"""Which models there are, which of them can be used, and with what credentials.

Built from plain data: the catalogue, the entries of `models.json`, stored credentials, the agent's environment. A
provider's models are assembled on first use by `custom_models`; keys and headers stay here and are resolved for each
request. Precedence of keys: `--api-key`, stored, `models.json`, environment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from pigeon.providers.apis import KEY_HEADERS
from pigeon.providers.catalog.built_in import KNOWN, list_key_variables, to_current_provider_name
from pigeon.providers.custom_models import Headers, ProviderModels, UnusableEntry, build_provider_models
from pigeon.providers.request import Access
from pigeon.system.clock import now_ms
from pigeon.wire.base import merge_objects
from pigeon.wire.model import Model

if TYPE_CHECKING:
    from pigeon.providers.explanations import KeyOrigin

# The label of a configured value, with the variables that it comes from (`X-Team $TEAM`), and the value.
Labelled = tuple[str, str]
ADDRESS = "address"
AUTH_FILE = "auth.json"
_REPLACE_IT = "replace it there with a valid one"


class ValueResolver(Protocol):
    """Resolves values that name a variable or a command; implemented by `config/credentials`, which must not be
    imported here."""

    def is_configured(self, value: str, own: Mapping[str, str] | None = None) -> bool:
        """True if the value can be expected to resolve."""
        ...

    def resolve_without_running(self, value: str, own: Mapping[str, str] | None = None) -> str | None:
        """The value, as far as it is known without running anything."""
        ...

    def find_variables(self, value: str) -> set[str]:
        """The variables that a value names."""
        ...

    async def resolve(self, value: str, own: Mapping[str, str] | None = None) -> str | None:
        """The value to use; None if it cannot be had."""
        ...


class ModelCatalog(Protocol):
    """The models that exist before anything is configured."""

    def providers(self) -> list[str]: ...

    def models(self, provider: str) -> list[Model]:
        """The models of one provider; empty for an unknown one."""
        ...


class NoKey(Exception):
    """A model has no usable credentials; the text tells what to do."""


class _Configuration(Struct, frozen=True):
    """Values that are keys or may contain one, with their label, name and own variables; and their origin."""

    stored: Mapping[str, Mapping[str, Any]]
    entries: Mapping[str, Mapping[str, Any]]
    values: list[tuple[str, str, str, Mapping[str, str] | None]]
    variables: frozenset[str]


class _ResolvedKey(Struct, frozen=True):
    """A key, empty for none; the stored credential of its provider, and the variables that this sets."""

    text: str
    bearer: bool = False
    stored: Mapping[str, Any] | None = None
    own: Mapping[str, str] = {}


class NamedFiles(Struct, frozen=True):
    """The names of the files that entries and stored credentials are from; `name_stored` returns that of the file with
    a provider's credential."""

    models: str = "models.json"
    name_stored: Callable[[str], str] = lambda provider: AUTH_FILE


class ModelRegistry:
    """All models of one agent, built-in and configured, and their keys."""

    def __init__(
        self,
        *,
        catalog: ModelCatalog,
        entries: Mapping[str, Mapping[str, Any]],
        stored: Callable[[], Mapping[str, Mapping[str, Any]]],
        environ: Mapping[str, str],
        values: ValueResolver,
        problems: Iterable[str] = (),
        files: NamedFiles | None = None,
        hold: Callable[[Iterable[Labelled]], None] = lambda values: None,
    ) -> None:
        """`stored` returns the credentials of all providers; `hold` is called with each key before it is used.

        `files` are named in sentences for people.
        """
        self._catalog = catalog
        self._entries = _rename_to_current(entries)
        self._all_stored = stored
        self._environ = environ
        self._values = values
        self._files = files or NamedFiles()
        self._given_problems = list(problems)
        self._problems: dict[str, str] = {}
        self._cached: dict[str, ProviderModels] = {}
        self._runtime: dict[str, str] = {}
        self._configuration: _Configuration | None = None
        self._hold = hold
        self._held: list[Labelled] = []

    def providers(self) -> list[str]:
        """All provider ids, the built-in ones first."""
        known = self._catalog.providers()
        return known + [name for name in self._entries if name not in known]

    def all_models(self) -> list[Model]:
        return [model for provider in self.providers() for model in self.models_of(provider)]

    def list_available(self) -> list[Model]:
        """The models whose provider has credentials configured."""
        stored = _by_current_name(self._all_stored())
        with_keys = (provider for provider in self.providers() if self._has_key(provider, stored.get(provider)))
        return [model for provider in with_keys for model in self.models_of(provider)]

    def models_of(self, provider: str) -> list[Model]:
        return list(self._provider_models_of(to_current_provider_name(provider)).models.values())

    def find_usable(self, provider: str, model_id: str) -> Model | None:
        """The model, if it can be used."""
        return self.find_listed(provider, model_id) if self.has_key(provider) else None

    def find_listed(self, provider: str, model_id: str) -> Model | None:
        return self._provider_models_of(to_current_provider_name(provider)).models.get(model_id)

    def find_problems(self) -> list[str]:
        """Errors in the configuration, one sentence each."""
        for provider in self._entries:
            self._provider_models_of(provider)
        return self._given_problems + list(self._problems.values())

    def use_key(self, provider: str, key: str) -> None:
        """Use this key for the provider from now on, without storing it."""
        self._runtime[to_current_provider_name(provider)] = key
        self._hold([("key", key)])

    def put_entry(self, provider: str, entry: Mapping[str, Any] | None) -> None:
        """Add or replace one provider in the form of `models.json`; None removes it."""
        provider = to_current_provider_name(provider)
        self._entries = {name: value for name, value in self._entries.items() if name != provider}
        if entry is not None:
            self._entries[provider] = entry
        self._cached.clear()
        self._hold(self.find_secrets())

    def find_secrets(self) -> Iterator[Labelled]:
        """Every configured value that is a key or may contain one, as far as known without running anything."""
        for key in self._runtime.values():
            yield "key", key
        configured = self._current_configuration()
        for label, name, value, own in configured.values:
            # An address is used as written.
            text = value if name == ADDRESS else self._values.resolve_without_running(value, own)
            # The name of a provider is in every record about it.
            if text and text not in self._entries:
                yield label, text
        for name in configured.variables:
            if text := self._environ.get(name):
                yield f"${name}", text

    def list_key_variables(self) -> Collection[str]:
        """The variables that keys and headers refer to, and those of known providers."""
        return self._current_configuration().variables

    def _current_configuration(self) -> _Configuration:
        """The current configuration. It is requested before each command, so it is only rebuilt after a change."""
        stored, entries = self._all_stored(), self._entries
        known = self._configuration
        if known is None or known.stored != stored or known.entries is not entries:
            values = [
                (self._label_of_value(name, value), name, value, own)
                for name, value, own in self._configured_secrets(stored, entries)
            ]
            named = {name for _, _, value, _ in values for name in self._values.find_variables(value)}
            known = self._configuration = _Configuration(stored, entries, values, list_key_variables() | named)
        return known

    def _configured_secrets(
        self, stored: Mapping[str, Mapping[str, Any]], entries: Mapping[str, Mapping[str, Any]]
    ) -> Iterator[tuple[str, str, Mapping[str, str] | None]]:
        """Configured values: their label, the text in the file, their own variables."""
        for credential in stored.values():
            env = credential.get("env")
            own = {key: value for key, value in env.items() if isinstance(value, str)} if isinstance(env, dict) else {}
            yield from ((key, value, None) for key, value in own.items())
            for label, field in (("key", "key"), ("token", "access"), ("token", "refresh"), ("token", "token")):
                if isinstance(credential.get(field), str):
                    yield label, credential[field], own
        for entry in entries.values():
            yield from _secrets_of_entry(entry)

    def _label_of_value(self, name: str, value: str) -> str:
        return " ".join([name, *(f"${variable}" for variable in self._values.find_variables(value))])

    def _stored_credential(self, provider: str) -> Mapping[str, Any] | None:
        return self._find_stored(provider)[1]

    def _find_stored(self, provider: str) -> tuple[str, Mapping[str, Any] | None]:
        """A provider's credential, and the name under which it is stored, which may be an earlier one."""
        stored = self._all_stored()
        if stored.get(provider):
            return provider, stored[provider]
        return next((one for one in stored.items() if to_current_provider_name(one[0]) == provider), (provider, None))

    def has_key(self, provider: str) -> bool:
        """True if credentials are configured; no command is run to find out."""
        provider = to_current_provider_name(provider)
        return self._has_key(provider, self._stored_credential(provider))

    def _has_key(self, provider: str, stored: Mapping[str, Any] | None) -> bool:
        if provider in self._runtime:
            return True
        if stored is not None:
            return self._is_usable_credential(stored)
        entry = self._entries.get(provider, {})
        if "apiKey" in entry:
            return self._values.is_configured(entry["apiKey"])
        if self._find_key_variable(provider) is not None:
            return True
        headers = entry.get("headers", {})
        return any(
            name.lower() in KEY_HEADERS and value and self._values.is_configured(value)
            for name, value in headers.items()
        )

    def key_source(self, provider: str) -> str:
        """The source of a provider's key: its variable, if nothing else provides one, else the provider itself."""
        entry = self._entries.get(provider, {})
        if provider in self._runtime or self._stored_credential(provider) is not None or "apiKey" in entry:
            return provider
        return self._find_key_variable(provider) or provider

    def describe_missing_key(self, model: Model) -> str:
        """That a model has no key, and what to do, in one sentence without a full stop."""
        text = f"No API key for {model.reference}"
        stored = self._stored_credential(model.provider)
        if stored is not None and stored.get("type") == "oauth":
            return f"{text}: the stored login has expired; store an API key instead"
        if "apiKey" in self._entries.get(model.provider, {}):
            why = "a variable is unset, or a command failed, printed more than 64 KiB or took longer than 10 s"
            return f'{text}: "apiKey" in {self._files.models} gives nothing ({why})'
        known = KNOWN.get(model.provider)
        if known is not None:
            return f"{text}: set {known.keys[0]}, pass --api-key, or store a key in auth.json"
        return f'{text}: set "apiKey" for this provider in {self._files.models}, or pass --api-key'

    def describe_key_origin(self, provider: str) -> KeyOrigin:
        """Where a provider's key comes from, and how to replace it, for people; the order is that of precedence."""
        where, remedy = self._find_key_origin(provider)
        from pigeon.providers.explanations import KeyOrigin

        return KeyOrigin(where, remedy, self._files.models)

    def _find_key_origin(self, provider: str) -> tuple[str, str]:
        if provider in self._runtime:
            return "given at the start (--api-key)", "give a valid one"
        entry, (name, stored) = self._entries.get(provider, {}), self._find_stored(provider)
        file = self._files.name_stored(name)
        # What is in another file cannot be replaced there by hand, and counts less.
        replace_it = _REPLACE_IT if file == AUTH_FILE else f"store a valid one in {AUTH_FILE}"
        if stored is not None and stored.get("type") == "oauth":
            place = "there" if file == AUTH_FILE else f"in {AUTH_FILE}"
            return f"of the login in {file}", f"log in again, or store an API key {place} instead"
        if stored is not None and stored.get("key"):
            return self._find_origin_in_file(file, str(stored["key"]), replace_it)
        if stored is None and "apiKey" in entry:
            key = str(entry["apiKey"])
            return self._find_origin_in_file(self._files.models, key, _REPLACE_IT)
        own = {} if stored is None else {key: str(value) for key, value in (stored.get("env") or {}).items()}
        variable = self._find_key_variable(provider, own)
        if variable is None:
            return f"of the headers in {self._files.models}", "correct it there"
        if own.get(variable):
            return f"from {variable} in {file}", replace_it
        return f"from the variable {variable}", "set that to a valid key, and start Pigeon again"

    def _find_origin_in_file(self, file: str, value: str, replace_it: str) -> tuple[str, str]:
        named = sorted(self._values.find_variables(value))
        if value.startswith("!"):
            return f"from the command in {file}", "have it print a valid key"
        if named:
            variables = " and ".join(named)
            return (
                f"from the variable {variables}, which {file} names",
                "set that to a valid key, and start Pigeon again",
            )
        return f"from {file}", replace_it

    async def resolve_access(self, model: Model) -> Access:
        """Key and headers for one request; raises `NoKey`."""
        provider = model.provider
        found = await self._resolve_key(provider)
        key, own = found.text.strip(), found.own
        _require_sendable(key, "The API key for", model)
        known = self._provider_models_of(provider)
        headers: Headers = {}
        used = [("key", key), *own.items()]
        for name, value in {**known.headers, **known.model_headers.get(model.id, {})}.items():
            resolved = None if value is None else await self._values.resolve(value, own)
            if value is not None and resolved is not None:
                used.append((self._label_of_value(name, value), resolved))
            if value is None or resolved is not None:
                headers[name.lower()] = None if resolved is None else resolved.strip()
                _require_sendable(resolved or "", f'The header "{name}" of', model)
        if key and self._entries.get(provider, {}).get("authHeader"):
            headers.setdefault("authorization", f"Bearer {key}")
        # A key that a command printed is known from here on, before anything can repeat it. What other providers have
        # configured is not asked for again: `secrets` takes longer than all the rest of this.
        if used != self._held:
            self._held = used
            self._hold(used)
        if not key and not any(headers.get(name) for name in KEY_HEADERS):
            raise NoKey(self.describe_missing_key(model))
        return Access(
            key=key, bearer=found.bearer, headers=headers, env={**self._environ, **own} if own else self._environ
        )

    async def _resolve_key(self, provider: str) -> _ResolvedKey:
        if provider in self._runtime:
            return _ResolvedKey(self._runtime[provider])
        stored = self._stored_credential(provider)
        if stored is None:
            configured = self._entries.get(provider, {}).get("apiKey")
            if configured is not None:
                return _ResolvedKey(await self._values.resolve(configured) or "")
            return self._key_from_variable(provider, None, {})
        own = {name: value for name, value in (stored.get("env") or {}).items() if isinstance(value, str)}
        if stored.get("type") == "oauth":
            if not self._is_usable_credential(stored):
                return _ResolvedKey("", False, stored, own)
            return _ResolvedKey(str(stored.get("access") or ""), True, stored, own)
        if stored.get("key"):
            return _ResolvedKey(await self._values.resolve(str(stored["key"]), own) or "", False, stored, own)
        return self._key_from_variable(provider, stored, own)

    def _key_from_variable(self, provider: str, stored: Mapping[str, Any] | None, own: dict[str, str]) -> _ResolvedKey:
        variable = self._find_key_variable(provider, own)
        if variable is None:
            return _ResolvedKey("", False, stored, own)
        text = own.get(variable) or self._environ[variable]
        return _ResolvedKey(text, variable in KNOWN[provider].bearer, stored, own)

    def _is_usable_credential(self, stored: Mapping[str, Any]) -> bool:
        if stored.get("type") == "oauth":
            expires = stored.get("expires")
            alive = not isinstance(expires, int | float) or expires > now_ms()
            return bool(stored.get("access")) and alive
        key, own = stored.get("key"), stored.get("env")
        env = own if isinstance(own, dict) else None
        return (isinstance(key, str) and self._values.is_configured(key, env)) or bool(env)

    def _find_key_variable(self, provider: str, own: Mapping[str, str] | None = None) -> str | None:
        known = KNOWN.get(provider)
        if known is None:
            return None
        for name in (*known.keys, *known.bearer):
            if (own and own.get(name)) or self._environ.get(name):
                return name
        return None

    def _provider_models_of(self, provider: str) -> ProviderModels:
        found = self._cached.get(provider)
        if found is None:
            found = self._compose_models(provider)
            self._cached[provider] = found
        return found

    def _compose_models(self, provider: str) -> ProviderModels:
        built_in = self._catalog.models(provider)
        entry = self._entries.get(provider, {})
        try:
            return build_provider_models(provider, built_in, entry)
        except UnusableEntry as error:
            self._problems[provider] = f'Provider "{provider}" in {self._files.models} is left out: {error}'
            return build_provider_models(provider, built_in, {})


def _rename_to_current(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The entries by current provider name; one under an earlier name is merged into the other."""
    found: dict[str, Mapping[str, Any]] = {}
    for name, entry in sorted(entries.items(), key=lambda item: to_current_provider_name(item[0]) == item[0]):
        before = found.get(to_current_provider_name(name), {})
        models = [*before.get("models", ()), *entry.get("models", ())]
        found[to_current_provider_name(name)] = merge_objects(before, {**entry, "models": models} if before else entry)
    return {to_current_provider_name(name): found[to_current_provider_name(name)] for name in entries}


def _by_current_name(stored: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The credentials by current provider name; one that is stored under it counts more than one under an earlier
    name."""
    found: dict[str, Mapping[str, Any]] = {}
    for name, credential in stored.items():
        found.setdefault(to_current_provider_name(name), credential)
    return found | {name: credential for name, credential in stored.items() if credential}


def _secrets_of_entry(entry: Mapping[str, Any]) -> Iterator[tuple[str, str, None]]:
    """The values in an entry of `models.json` that may be keys or contain one."""
    overrides = entry.get("modelOverrides") or {}
    for part in (entry, *(entry.get("models") or ()), *overrides.values()):
        headers = part.get("headers") or {}
        for label, value in (("key", part.get("apiKey")), (ADDRESS, part.get("baseUrl")), *headers.items()):
            if isinstance(value, str):
                yield label, value, None


def _require_sendable(value: str, what: str, model: Model) -> None:
    """Raise for a value that a header cannot carry; the text names the value without showing it."""
    text = value.strip()
    if not text.isascii() or not (text.isprintable() or not text):
        raise NoKey(
            f"{what} {model.reference} contains a character that cannot be sent in a header (a line break, a control "
            "character or a letter outside ASCII). Correct it where it is set: environment, auth.json or models.json"
        )
