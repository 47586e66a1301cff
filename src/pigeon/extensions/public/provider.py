"""A provider of models that an extension contributes: an entry in the form of `models.json`, and a function that
answers if the provider is not an HTTP service that Pigeon supports.

Such a function is an async generator over a request. It yields text as strings, `Think` and `Call`, or the loop's own
deltas; blocks, ends and failures are assembled here.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pigeon.agent.inference import (
    BlockClosed,
    BlockGrew,
    BlockKind,
    BlockOpened,
    Delta,
    Failure,
    Finished,
    Metered,
    ModelRequest,
    Named,
)
from pigeon.extensions.public.failures import ExtensionFailed, text_of_error
from pigeon.extensions.runtime.pausable_timeout import PausableTimeout
from pigeon.wire import codec
from pigeon.wire.base import Json

if TYPE_CHECKING:
    from pigeon.extensions.runtime.extension_thread import ExtensionThread
    from pigeon.extensions.runtime.session_access import LoopBridge

AHEAD = 16
NO_URL = "extension://"
NO_KEY = "extension"


@dataclass(frozen=True, slots=True)
class Think:
    """A piece of reasoning that a provider's generator yields."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that a provider's generator yields."""

    tool: str
    arguments: dict[str, Json]
    id: str = ""


@dataclass(frozen=True, slots=True)
class ProviderDef:
    """A provider as declared by an extension."""

    name: str
    entry: dict[str, Any]
    answer: Callable[[ModelRequest], AsyncIterator[Any]] | None


def build_provider_def(
    name: str,
    entry: Mapping[str, Any],
    models: Sequence[Mapping[str, Any] | str] | None,
    function: Callable[..., Any] | None,
) -> ProviderDef:
    """Assemble a declaration; raises `ValueError` if something is missing."""
    answers = function is not None and inspect.isasyncgenfunction(function)
    if function is not None and not answers:
        models = function()
    if not models:
        raise ValueError(f'the provider "{name}" has no models')
    listed = [{"id": model} if isinstance(model, str) else dict(model) for model in models]
    if not all(isinstance(model.get("id"), str) and model["id"] for model in listed):
        raise ValueError(f'a model of the provider "{name}" has no id')
    whole = {**entry, "models": listed}
    if answers:
        whole = {"baseUrl": NO_URL, "apiKey": NO_KEY, **whole, "api": name}
    elif not whole.get("api") or not whole.get("baseUrl"):
        raise ValueError(f'the provider "{name}" needs api and base_url, or an async generator that answers')
    return ProviderDef(name, codec.decode(codec.encode(whole)), function if answers else None)


class ExtensionProvider:
    """Answers requests with an extension's generator, which runs in the extension's thread."""

    def __init__(self, provider: ProviderDef, thread: ExtensionThread, bridge: LoopBridge) -> None:
        self._provider = provider
        self._thread = thread
        self._bridge = bridge

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Run the generator for a request and stream its deltas."""
        ready: asyncio.Queue[Any] = asyncio.Queue(AHEAD)
        answer = self._provider.answer
        assert answer is not None

        async def produce_items() -> None:
            async for item in answer(request):
                await self._bridge.run(functools.partial(ready.put, (item,)))

        async def run_generator() -> None:
            try:
                await self._thread.call(produce_items, (), PausableTimeout(None))
            except ExtensionFailed as error:
                await ready.put(Failure(message=str(error), code="extension"))
            else:
                await ready.put(None)

        running = asyncio.ensure_future(run_generator())
        blocks = _Blocks()
        try:
            while isinstance(item := await ready.get(), tuple):
                for delta in blocks.to_deltas(item[0]):
                    yield delta
                    if isinstance(delta, Finished):
                        return
            for delta in blocks.finish(item):
                yield delta
        finally:
            running.cancel()


class _Blocks:
    """Assembles pieces into blocks that open, grow and close."""

    def __init__(self) -> None:
        self._kind: BlockKind | None = None
        self._index = -1
        self._calls = 0

    def to_deltas(self, item: Any) -> list[Delta]:
        if isinstance(item, (Named, BlockOpened, BlockGrew, BlockClosed, Metered, Finished)):
            if isinstance(item, BlockOpened):
                self._index = item.index
            return [item]
        if isinstance(item, str):
            return self._add_text("text", item)
        if isinstance(item, Think):
            return self._add_text("thinking", item.text)
        if isinstance(item, Call):
            return self._add_call(item)
        unusable = f"the generator yielded {type(item).__name__}; it may yield strings, Think, Call or deltas"
        return self.finish(Failure(message=unusable, code="extension"))

    def finish(self, failure: Failure | None) -> list[Delta]:
        stop = "error" if failure else "toolUse" if self._calls else "stop"
        return [*self._close_block(), Finished(stop=stop, failure=failure)]  # type: ignore[arg-type]

    def _add_text(self, kind: BlockKind, text: str) -> list[Delta]:
        deltas: list[Delta] = []
        if self._kind != kind:
            deltas = [*self._close_block(), self._open_block(kind)]
        return [*deltas, BlockGrew(index=self._index, text=text)]

    def _add_call(self, call: Call) -> list[Delta]:
        self._calls += 1
        before = self._close_block()
        try:
            arguments = codec.encode(call.arguments).decode()
        except (TypeError, ValueError, RecursionError) as error:
            return self.finish(Failure(message=f"arguments of a call: {text_of_error(error)}", code="extension"))
        opened = self._open_block("toolCall", call.id or f"call_{os.urandom(6).hex()}", call.tool)
        return [*before, opened, BlockGrew(index=self._index, text=arguments), *self._close_block()]

    def _open_block(self, kind: BlockKind, call_id: str = "", name: str = "") -> BlockOpened:
        self._kind = kind
        self._index += 1
        return BlockOpened(index=self._index, kind=kind, call_id=call_id, name=name)

    def _close_block(self) -> list[Delta]:
        kind, self._kind = self._kind, None
        return [] if kind is None else [BlockClosed(index=self._index)]
