"""Functions of a program as tools of the model: `@pigeon.tool`.

The schema comes from the type hints and the docstring, the same way as for tools of extensions. A plain function runs
in a separate thread, an async one in the program's event loop. Its return value becomes text (values other than text as
JSON) or images; an exception becomes an error result that the model reads.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from msgspec import ValidationError

from pigeon.sdk.images import image_of
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Json
from pigeon.wire.commands import HostTool, HostToolOutcome
from pigeon.wire.content import ImageContent, ImageInput, TextContent

if TYPE_CHECKING:
    from pigeon.extensions.public.tool_def import ToolDef

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")


class ToolContext:
    """The argument of a tool's parameter of this type, or named `ctx`: its call, whether to stop, how to show progress.

    Example:
        import pigeon
        from pigeon.testing import call, scripted


        @pigeon.tool
        def count(to: int, ctx: pigeon.ToolContext) -> str:
            '''Count to a number.'''
            for number in range(to):
                if ctx.cancelled:
                    return f"stopped at {number}"
                ctx.update(f"{number} of {to}")
            return f"counted to {to}"


        with scripted(call("count", to=3), "Done.") as model:
            assert pigeon.run_sync("Count to 3", model=model, tools=[count]).text == "Done."
    """

    def __init__(self, call_id: str, show: Callable[[HostToolOutcome], None]) -> None:
        self.call_id = call_id
        self._show = show
        self._stopped = threading.Event()

    @property
    def cancelled(self) -> bool:
        """True once the call should stop; plain functions check it, async ones are cancelled."""
        return self._stopped.is_set()

    def cancel(self) -> None:
        """Ask the call to stop; sets `cancelled`."""
        self._stopped.set()

    def update(self, progress: Any) -> None:
        """Show all progress so far; may be called from any thread."""
        self._show(outcome_of(progress))


class HostFunction(Generic[_P, _R]):
    """A function that the model may call; the program can still call it itself."""

    def __init__(self, function: Callable[_P, _R], definition: ToolDef) -> None:
        self._function = function
        self._definition = definition
        self.__doc__ = function.__doc__
        self.__name__ = definition.spec.name
        self.__wrapped__ = function

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call the function as plain Python code."""
        return self._function(*args, **kwargs)

    @property
    def name(self) -> str:
        """The name by which the model calls the function."""
        return self._definition.spec.name

    @property
    def schema(self) -> dict[str, Json]:
        """Its arguments as a JSON Schema."""
        return self._definition.spec.parameters

    def definition(self) -> HostTool:
        """The tool as it is declared to the agent."""
        spec = self._definition.spec
        return HostTool(
            name=spec.name,
            description=spec.description,
            parameters=spec.parameters,
            read_only=True if self._definition.reads_only else ABSENT,
        )

    async def called(self, arguments: dict[str, Json], context: ToolContext) -> HostToolOutcome:
        """Call it as the model does; raises the function's exceptions, and errors in the arguments."""
        try:
            call = self._definition.bind_call(arguments, context)
        except ValidationError as error:
            raise ValueError(f"The arguments do not fit: {error}") from None
        if inspect.iscoroutinefunction(self._function):
            result = await call()
        else:
            result = await run_in_thread(call)
            if inspect.isawaitable(result):
                result = await result
        return outcome_of(result)


@overload
def tool(function: Callable[_P, _R], /) -> HostFunction[_P, _R]: ...


@overload
def tool(
    *, name: str = "", description: str = "", schema: dict[str, Any] | None = None, read_only: bool = False
) -> Callable[[Callable[_P, _R]], HostFunction[_P, _R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    schema: dict[str, Any] | None = None,
    read_only: bool = False,
) -> Any:
    """Make a function a tool; raises `TypeError` or `ValueError` if its type hints or docstring do not suffice.

    `read_only` means that calls may run in parallel. With an explicit `schema`, the function gets the arguments as one
    dictionary.

    Example:
        import pigeon
        from pigeon.testing import call, scripted


        @pigeon.tool
        def population(city: str) -> int:
            '''How many people live in a city.'''
            return {"Bonn": 340_000}[city]


        with scripted(call("population", city="Bonn"), "About 340,000.") as model:
            print(pigeon.run_sync("How many people live in Bonn?", model=model, tools=[population]).text)
        assert population("Bonn") == 340_000
    """
    from pigeon.extensions.public.tool_def import build_tool_def

    def make_tool(one: Callable[_P, _R]) -> HostFunction[_P, _R]:
        definition = build_tool_def(one, name=name, description=description, schema=schema, reads_only=read_only)
        return HostFunction(one, definition)

    return make_tool if function is None else make_tool(function)


def outcome_of(result: Any) -> HostToolOutcome:
    """The return value of a function in the form for the agent."""
    if isinstance(result, HostToolOutcome):
        return result
    parts = result if isinstance(result, list | tuple) and any(map(_is_image, result)) else [result]
    return HostToolOutcome(content=[_to_block(part) for part in parts])


def failure_of(error: BaseException) -> HostToolOutcome:
    """The failure of a function in the form for the model."""
    text = _error_text_of(error)
    plain = isinstance(error, ValueError | RuntimeError) and type(error) in (ValueError, RuntimeError)
    return HostToolOutcome(content=[_to_text_block(text if plain else f"{type(error).__name__}: {text}")])


def _error_text_of(error: BaseException) -> str:
    """The text of an exception, or the name of its type if it has none, or if its text fails."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def _to_block(value: Any) -> Json:
    if value is None:
        return _to_text_block("Done.")
    if isinstance(value, str):
        return _to_text_block(value)
    if _is_image(value):
        return codec.to_plain(image_of(value))
    try:
        return _to_text_block(codec.encode(value).decode())
    except (TypeError, ValueError, RecursionError):
        return _to_text_block(str(value))


def _is_image(value: Any) -> bool:
    return isinstance(value, bytes | ImageContent | ImageInput) or (hasattr(value, "save") and hasattr(value, "mode"))


def _to_text_block(text: str) -> Json:
    return codec.to_plain(TextContent(text=text))


def run_in_thread(call: Callable[[], _T]) -> Coroutine[Any, Any, _T]:
    """Run a call in a separate thread: one that never ends keeps neither the agent nor the program from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = context.run(call)
        except BaseException as error:
            # A future cannot hold StopIteration, and the end of a thread must not be that of the program.
            raisable = isinstance(error, Exception) and not isinstance(error, StopIteration)
            failure = error if raisable else RuntimeError(f"{type(error).__name__}: {_error_text_of(error)}")
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            return  # the loop has ended, and the conversation with it

    threading.Thread(target=run, name="pigeon-callable", daemon=True).start()

    async def wait() -> _T:
        return await done

    return wait()
