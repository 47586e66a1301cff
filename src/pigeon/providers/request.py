"""What every adapter builds its requests with: credentials, headers, facts of the model, room for the answer.

`Gateway` makes one `RequestSetup` per request: the client, timeouts, hooks, credentials and the history cache. An
adapter builds the body and the headers, and hands both to `http/exchange`. Credentials live here and in the registry,
and are never part of a `Model`, which hosts see. The second half is the arithmetic of tokens: how much of the context
window is left, how long an answer may be, and how much of it is thinking.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from pigeon.agent.inference import Failure, ModelMessage, ModelRequest, Pacing, ProviderHooks
from pigeon.system.clock import sleep_ms
from pigeon.system.ids import RANDOM_IDS
from pigeon.wire import codec
from pigeon.wire.base import Absent
from pigeon.wire.messages import AssistantMessage
from pigeon.wire.model import Model, clamp_level
from pigeon.wire.tokens import characters_of, prompt_tokens

if TYPE_CHECKING:
    from pigeon.providers.history.cache import HistoryCache
    from pigeon.providers.http.client import HttpClient

IDLE_MS = 300_000
SAFETY_TOKENS = 4096
ANSWER_TOKENS = 1024
THINKING_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384}


class RequestPolicy(Struct, frozen=True):
    """How long to wait and how often to retry before the stream begins; 0 means no limit, or never.

    `most_empty_bytes` may come in a row without any content: pings, comments, token counts. `sleep` waits for so many
    milliseconds, or not at all in a replay. `new_id` creates an id for tool calls that came without one. `pacing`
    decides when a request may be sent if other agents share the limits of providers.
    """

    idle_ms: int = IDLE_MS
    max_retries: int = 0
    max_retry_delay_ms: int = 60_000
    most_empty_bytes: int = 32 * 1024 * 1024
    sleep: Callable[[float], Awaitable[None]] = sleep_ms
    new_id: Callable[[], str] = RANDOM_IDS.request_id
    pacing: Pacing | None = None


class NoProviderHooks:
    """No extensions: requests are sent as they are."""

    async def transform_provider_request(self, body: bytes) -> bytes:
        return body

    async def transform_provider_headers(self, headers: dict[str, str]) -> dict[str, str]:
        return headers

    def on_provider_response(self, status: int, headers: Mapping[str, str]) -> None:
        """Does nothing: there are no extensions to notify."""


class Access(Struct, frozen=True):
    """Credentials of one request; a header of None removes a default one; `env` has the variables of this provider."""

    key: str = ""
    bearer: bool = False
    headers: dict[str, str | None] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


def _keep_unexplained(failure: Failure) -> Failure:
    return failure


class RequestSetup(Struct, frozen=True):
    """Everything that one request is sent with; without a cache the whole history is converted each time.

    `mask_text` masks keys in error texts. `not_strict` has the models whose server does not accept strict tools; an
    adapter adds those it learns about. `explain` adds the sentence for people to a failure.
    """

    http: HttpClient
    hooks: ProviderHooks
    access: Access
    policy: RequestPolicy = RequestPolicy()
    thinking_budgets: Mapping[str, int] = field(default_factory=dict)
    history: HistoryCache | None = None
    mask_text: Callable[[str], str] = str
    not_strict: set[str] = field(default_factory=set)
    explain: Callable[[Failure], Failure] = _keep_unexplained


def make_request_headers(own: Mapping[str, str], configured: Mapping[str, str | None]) -> dict[str, str]:
    """The headers of a request for an event stream, by lower-case name.

    The adapter's own headers override the defaults, and configured ones override both; a configured None removes a
    header.
    """
    headers = {"content-type": "application/json", "accept": "text/event-stream", **own}
    for name, value in configured.items():
        if value is None:
            headers.pop(name.lower(), None)
        else:
            headers[name.lower()] = value
    return headers


def compat_of(model: Model) -> dict[str, Any]:
    """The configured compat flags of a model."""
    return {} if isinstance(model.compat, Absent) else model.compat


def mapped_level(model: Model, level: str, default: str | None) -> str | None:
    """The provider's name of a thinking level: from the model's map, else the default."""
    levels = {} if isinstance(model.thinking_level_map, Absent) else model.thinking_level_map
    return levels.get(level, default)


def sampling_of(request: ModelRequest) -> dict[str, Any]:
    """The configured sampling parameters of the model, overridden by those of the thinking level.

    For the APIs of OpenAI, where servers differ in what they accept. The others refuse most of them beside thinking.
    """
    model = request.model
    found = {} if isinstance(model.sampling_params, Absent) else model.sampling_params
    levels = model.sampling_params_by_thinking_level
    return found if isinstance(levels, Absent) else {**found, **levels.get(clamp_level(request.thinking, model), {})}


def join_url(base_url: str, path: str) -> str:
    """The base URL and a path, with one slash between."""
    return f"{base_url.rstrip('/')}/{path}"


def estimate_context_tokens(request: ModelRequest) -> int:
    """Tokens of the prompt: those billed for the last answer, and a cautious estimate of the characters since."""
    billed = _last_billed_index(request.messages)
    since = sum(prompt_tokens(characters_of(message)) for message in request.messages[billed + 1 :])
    if billed >= 0:
        answer = request.messages[billed]
        assert isinstance(answer, AssistantMessage)
        return answer.usage.total_tokens + since
    chars = sum(len(tool.name) + len(tool.description) + len(codec.encode(tool.parameters)) for tool in request.tools)
    chars += 0 if request.output is None else len(codec.encode(request.output.schema))
    return since + prompt_tokens(len(request.system_prompt)) + prompt_tokens(chars)


_timestamp_of = attrgetter("timestamp")


def _last_billed_index(messages: list[ModelMessage]) -> int:
    """The last answer whose counts are still valid: older history was not replaced by anything newer since."""
    newest_before: list[int] = []
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if not (isinstance(message, AssistantMessage) and _has_valid_counts(message)):
            continue
        # Called for each request: nearly always the last answer is newer than all before it, so that is tried first.
        if not newest_before:
            if message.timestamp >= max(map(_timestamp_of, messages[:index]), default=0):
                return index
            newest_before = list(accumulate(map(_timestamp_of, messages), max, initial=0))
        elif message.timestamp >= newest_before[index]:
            return index
    return -1


def _has_valid_counts(message: AssistantMessage) -> bool:
    return message.stop_reason not in ("error", "aborted") and message.usage.total_tokens > 0


def choose_output_cap(request: ModelRequest) -> int:
    """The longest answer to request, at least 1; 0 if neither the request nor the model sets a limit."""
    wanted = request.max_tokens or request.model.max_tokens
    if wanted <= 0:
        return 0
    return limit_to_window(wanted, request)


def limit_to_window(tokens: int, request: ModelRequest) -> int:
    """The tokens, limited to what fits behind the prompt."""
    window = request.model.context_window
    if window <= 0:
        return tokens
    safety = min(SAFETY_TOKENS, window // 4)
    return max(1, min(tokens, window - estimate_context_tokens(request) - safety))


def thinking_budget(level: str, own: Mapping[str, int]) -> int:
    """Tokens for thinking at a level; the highest levels use those of `high`."""
    if level in own:
        return own[level]
    if level in THINKING_BUDGETS:
        return THINKING_BUDGETS[level]
    return own.get("high", THINKING_BUDGETS["high"])


def thinking_budget_within(level: str, own: Mapping[str, int], cap: int) -> int:
    """Tokens for thinking out of an answer of at most `cap` tokens, 0 for any length; 0 if there is no room."""
    budget = thinking_budget(level, own)
    return min(budget, max(0, cap - ANSWER_TOKENS)) if cap else budget


def split_budget(request: ModelRequest, own: Mapping[str, int]) -> tuple[int, int]:
    """(output tokens, thinking tokens of them) for providers that count both together."""
    model: Model = request.model
    budget = thinking_budget(request.thinking, own)
    base = request.max_tokens or model.max_tokens or budget + ANSWER_TOKENS
    ceiling = model.max_tokens or base + budget
    total = min(base + budget, ceiling)
    if total <= budget:
        budget = max(0, total - ANSWER_TOKENS)
    total = limit_to_window(total, request)
    return total, max(0, min(budget, total - ANSWER_TOKENS))
