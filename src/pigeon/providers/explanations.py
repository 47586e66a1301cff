"""What a failure of a model server means: one sentence for the person who reads it, with the key that was used, its
origin, and what to do.

`Failure.message` has the words of the server. They stay in session files, in traces, and in what hosts get, since
clients of the family match them. Whatever shows a failure to a person shows the explanation instead. For earlier
failures, of which only the text was kept, `explain_text` makes it from that.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
from msgspec import Struct

from pigeon.agent.inference import Failure
from pigeon.providers.catalog.built_in import KNOWN
from pigeon.providers.errors import (
    NO_STREAM,
    SERVER_CODES,
    classify_failure,
    code_of,
    error_object,
    is_out_of_quota,
    message_of,
)
from pigeon.providers.http.network_errors import list_failure_leads
from pigeon.wire.base import Absent
from pigeon.wire.messages import AssistantMessage

LONGEST_REASON = 200
CHOOSE_ANOTHER = "choose another model"
_CHECK_NETWORK = "check your network connection; where a proxy is needed, set HTTPS_PROXY"


class KeyOrigin(Struct, frozen=True):
    """Where a key comes from, after the words "the API key", and how to replace it; nothing if that is not known.

    `models_file` is the file that describes the provider, if the catalogue does not.
    """

    where: str = ""
    remedy: str = "`pigeon doctor` shows which one is used"
    models_file: str = "models.json"


class _Facts(Struct, frozen=True):
    """What the sentences are made of: `said` is the reason in the server's words, on one line."""

    failure: Failure
    provider: str
    model: str
    origin: KeyOrigin
    said: str

    @property
    def correct_url(self) -> str:
        return f'correct its "baseUrl" in {self.origin.models_file}'

    @property
    def name(self) -> str:
        known = KNOWN.get(self.provider)
        return known.name if known is not None else f'The provider "{self.provider}"'

    @property
    def inner_name(self) -> str:
        return self.name.replace("The provider", "the provider", 1)

    @property
    def key(self) -> str:
        return f"the API key {self.origin.where}".rstrip()

    @property
    def why(self) -> str:
        status = self.failure.status
        return ": ".join(filter(None, ("" if status is None else str(status), self.said))) or "no reason was given"

    @property
    def pause(self) -> str:
        asked = self.failure.retry_after_ms
        return f"wait {max(1, round(asked / 1000))} s" if asked else "wait a moment"


def _explain_refused_key(facts: _Facts) -> str:
    return f"{facts.name} refused {facts.key} ({facts.why}): {facts.origin.remedy}"


def _explain_forbidden(facts: _Facts) -> str:
    return f"{facts.name} does not let {facts.key} use {facts.model} ({facts.why}): {CHOOSE_ANOTHER} or another key"


def _explain_unknown_model(facts: _Facts) -> str:
    listed = f"{CHOOSE_ANOTHER} (`pigeon models` lists them)"
    is_sure = facts.provider in KNOWN and "model" in facts.said.lower()
    otherwise = "" if is_sure else f", or {facts.correct_url}"
    return f"{facts.name} does not have the model {facts.model} ({facts.why}): {listed}{otherwise}"


def _explain_full_context(facts: _Facts) -> str:
    return (
        f"The conversation is too long for {facts.model} ({facts.why}): compact it, begin a new one, or "
        "choose a model with a larger context"
    )


def _explain_no_credit(facts: _Facts) -> str:
    account = f"The account of {facts.key} at {facts.inner_name}"
    remedy = f"check its plan and billing there, or {CHOOSE_ANOTHER}"
    return f"{account} has no credit left or has used up its quota ({facts.why}): {remedy}"


def _explain_rate_limit(facts: _Facts) -> str:
    return f"{facts.name} gets too many requests with {facts.key} ({facts.why}): {facts.pause}, or {CHOOSE_ANOTHER}"


def _explain_overload(facts: _Facts) -> str:
    return f"{facts.name} is overloaded ({facts.why}): {facts.pause} and try again, or {CHOOSE_ANOTHER}"


def _explain_server_failure(facts: _Facts) -> str:
    return f"{facts.name} has failed ({facts.why}): try again in a moment, or {CHOOSE_ANOTHER}"


def _explain_refusal(facts: _Facts) -> str:
    return f"{facts.name} refused the request to {facts.model} ({facts.why})"


def _explain_moved_server(facts: _Facts) -> str:
    return f"{facts.name} is not at this address ({facts.why}): {facts.correct_url}"


def _explain_web_page(facts: _Facts) -> str:
    return (
        f"{facts.name} sent something other than a model's answer ({_to_one_short_line(_without_tags(facts.said))}): "
        f"{facts.correct_url}, or log in to your network if it asks for that"
    )


def _explain_no_connection(facts: _Facts) -> str:
    place, _, reason = facts.said.partition(": ")
    host = place.rpartition(":")[0] or place
    if re.search(_UNKNOWN_HOST, reason, re.IGNORECASE):
        why, remedy = f"the name {host} cannot be resolved", _CHECK_NETWORK
    elif re.search(r"refused|connect call failed", reason, re.IGNORECASE):
        why, remedy = f"nothing accepts connections at {place}", _CHECK_NETWORK
    elif "unreachable" in reason.lower():
        why, remedy = f"the network of {host} cannot be reached", _CHECK_NETWORK
    else:
        why, remedy = facts.said, _CHECK_NETWORK
    if host == "localhost" or host.startswith(("127.", "[::1", "::1")):
        remedy = f"start the server, or {facts.correct_url}"
    elif facts.provider not in KNOWN:
        remedy = f"{remedy}, or {facts.correct_url}"
    return f"{facts.name} cannot be reached, because {why}: {remedy}"


def _explain_untrusted_certificate(facts: _Facts) -> str:
    return (
        f"{facts.name} cannot be reached, because its certificate is not trusted ({facts.said}): if a proxy of your "
        "network decrypts connections, set SSL_CERT_FILE to the file of its certificates"
    )


def _explain_proxy_failure(facts: _Facts) -> str:
    if "407" in facts.why:
        why = f"because the proxy requires a login ({facts.why})"
        return f"{facts.name} cannot be reached, {why}: put it into HTTPS_PROXY, as http://USER:PASSWORD@HOST:PORT"
    return (
        f"{facts.name} cannot be reached, because the proxy refused the connection ({facts.said}): check HTTPS_PROXY "
        "and the setting httpProxy"
    )


def _explain_unreachable_proxy(facts: _Facts) -> str:
    return (
        f"{facts.name} cannot be reached, because there is no connection to the proxy ({facts.said}): check "
        "HTTPS_PROXY and the setting httpProxy"
    )


def _explain_slow_connection(facts: _Facts) -> str:
    return f"{facts.name} took too long to accept the connection ({facts.said}): {_CHECK_NETWORK}"


def _explain_lost_connection(facts: _Facts) -> str:
    return f"The connection to {facts.inner_name} broke ({facts.said}): try again"


_UNKNOWN_HOST = (
    r"name or service not known|name resolution|nodename nor servname|no address associated|getaddrinfo|enotfound"
)
_WRONG_KEY = (
    r"api[ _]key not valid|api_key_invalid|(?:invalid|incorrect) (?:x-)?api[ _-]?key|invalid_api_key"
    r"|authentication_error|invalid authentication"
)
_NO_MODEL = r"model_not_found|not_found_error|deploymentnotfound|model.{0,80}(?:not found|does not exist)|unknown model"
_OVERLOAD = r"overloaded|at capacity|high demand|server_busy"
# The codes of failures below HTTP.
_BY_CODE: dict[str, Callable[[_Facts], str]] = {
    "connection_failed": _explain_no_connection,
    "tls_failed": _explain_untrusted_certificate,
    "proxy_failed": _explain_proxy_failure,
    "proxy_unreachable": _explain_unreachable_proxy,
    "connection_timeout": _explain_slow_connection,
    "connection_lost": _explain_lost_connection,
    "read_timeout": _explain_lost_connection,
    "not_a_stream": _explain_web_page,
}
# The beginnings of their texts, by which they are recognised in a session file.
_LEADS = {**list_failure_leads(), NO_STREAM: "not_a_stream"}


def explain_failure(failure: Failure, provider: str, model: str, origin: KeyOrigin | None = None) -> str:
    """The sentence for a failure of a request to a provider's model, without a full stop; empty if its own text is
    already one for people."""
    explain = _BY_CODE.get(failure.code or "")
    if explain is not None:
        said = failure.message
        for lead in _LEADS:
            said = said.removeprefix(lead)
    else:
        said = _find_reason(failure)
        explain = _find_explanation(failure, f"{failure.code or ''} {failure.message} {said}")
    if explain is None:
        return ""
    return explain(_Facts(failure, provider, model, origin or KeyOrigin(), _to_one_short_line(said)))


def explain_text(text: str, provider: str, model: str, origin: KeyOrigin | None = None) -> str:
    """The sentence for a failure of which only the text was kept; empty if the text is already one for people."""
    return explain_failure(_failure_of_text(text), provider, model, origin)


def explain_answer(message: AssistantMessage, origin: KeyOrigin | None = None) -> str:
    """Why an answer failed, for people: the explanation of its error text, or that text; empty if it did not fail."""
    if isinstance(message.error_message, Absent):
        return ""
    if message.stop_reason != "error":
        return message.error_message
    return explain_text(message.error_message, message.provider, message.model, origin) or message.error_message


def with_explanation(failure: Failure, provider: str, model: str, origin: KeyOrigin) -> Failure:
    """The same failure; its explanation is empty if its text is already one for people."""
    return msgspec.structs.replace(failure, explanation=explain_failure(failure, provider, model, origin))


def _find_explanation(failure: Failure, text: str) -> Callable[[_Facts], str] | None:
    status, lowered = failure.status, text.lower()
    if status is None and (failure.code or "").lower() not in SERVER_CODES and not failure.message.startswith("{"):
        return None
    if failure.overflow:
        return _explain_full_context
    if status is not None and 300 <= status < 400:
        return _explain_moved_server
    if status == 407:
        return _explain_proxy_failure
    if status == 401 or (status in (None, 400, 403) and re.search(_WRONG_KEY, lowered)):
        return _explain_refused_key
    if is_out_of_quota(text, status, failure.code, delay_named=failure.retry_after_ms is not None):
        return _explain_no_credit
    if status == 403:
        return _explain_forbidden
    if status == 404 or (status in (None, 400) and re.search(_NO_MODEL, lowered)):
        return _explain_unknown_model
    if status == 429 or "rate_limit" in lowered:
        return _explain_rate_limit
    if status in (503, 529) or re.search(_OVERLOAD, lowered):
        return _explain_overload
    if status is None or status >= 500:
        return _explain_server_failure
    return _explain_refusal


def _failure_of_text(text: str) -> Failure:
    """The failure that had this text, as far as the text tells."""
    for lead, code in _LEADS.items():
        if text.startswith(lead):
            return Failure(message=text, code=code)
    found = re.match(r"(\d{3})(?=\W)", text)
    error = _find_error_object(text)
    named = re.match(r"([a-z]+_[a-z_]+): ", text)
    return classify_failure(
        text,
        status=int(found[1]) if found else None,
        code=named[1] if named else code_of(error),
        text=f"{message_of(error)}\n{text}",
    )


def _find_reason(failure: Failure) -> str:
    """The server's own sentence inside the text of a failure, else the text without its status; empty if it sent an
    object without a sentence."""
    error = _find_error_object(failure.message)
    said = message_of(error)
    if not said and error is not None:
        return ""
    if not said and "{" in failure.message:
        # The object was cut off.
        cut = re.search(r'"message"\s*:\s*"((?:[^"\\]|\\.){1,400})', failure.message)
        said = cut[1] if cut else ""
    text = said or re.sub(r"\A\d{3}\b:?\s*", "", failure.message)
    return "" if text == "(no body)" else text


def _find_error_object(text: str) -> object:
    start, end = text.find("{"), text.rfind("}")
    return error_object(text[start : end + 1].encode("utf-8", "replace")) if 0 <= start < end else None


def _without_tags(text: str) -> str:
    return re.sub(r"<[^>]*>?", " ", text)


def _to_one_short_line(text: str) -> str:
    line = " ".join(text.split()).rstrip(".:; ")
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}…"
