"""The keys that Pigeon holds, kept out of everything that it writes.

`Redactor` knows the keys in use and finds them in texts, in the forms that programs give them: plain, base64,
hexadecimal, escaped for URLs, JSON, Python, HTML or a shell. Everything that leaves the process goes through the
redactor of its agent: events and answers (`rpc/outbox`), session files (`session/history/journal`), the output of
commands (`system/shell`), results of tools (`session/engine`), error texts (`providers/http/exchange`), pages, stderr.
It searches for literal texts, because `in` is a hundred times faster than a pattern; only matches, and texts broken
into lines, are examined more closely.
"""

from __future__ import annotations

import os
import re
from binascii import b2a_base64
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TextIO

from msgspec.structs import replace

from pigeon.system.process.variables import NEEDED, is_proxy, is_secret_name
from pigeon.wire import codec
from pigeon.wire.content import ImageContent, TextContent
from pigeon.wire.messages import ToolResultMessage

# --- keys -------------------------------------------------------------------------------------------------------------

MASK = "***"
IMAGE_WITH_KEY = "[An image was left out: its data contain a model provider's key]"
KEY = "key"
SHORTEST = 8
MOST_VALUES = 500
_MASKED = MASK.encode()
_SHORTEST_USER = 16
# Names of headers and of parts of an address whose values are keys.
SECRET_WORD = r"(?i)key|token|secret|passw|pwd|credential|auth|cookie|signature|\bsig\b|bearer"
# Headers that describe the program, and the form of keys in all other headers.
_HARMLESS_WORD = r"(?i)agent|version|beta|accept|content|refer|origin|title"
_RANDOM = r"(?=.*[0-9])(?=.*[A-Za-z])[!-~]{12,}"
# Placeholders that people write if a server requires a key but ignores it.
# fmt: off
_PLACEHOLDERS = frozenset((
    "0", "1", "123", "1234", "12345", "a", "any", "anything", "api", "apikey", "auth", "bar", "bearer", "change",
    "changeme", "cpp", "dummy", "empty", "example", "fake", "foo", "has", "here", "is", "key", "llama", "lm",
    "lmstudio", "local", "localhost", "me", "mock", "my", "needed", "no", "none", "not", "null", "ollama", "password",
    "placeholder", "put", "random", "required", "secret", "server", "sk", "some", "studio", "test", "testing", "the",
    "token", "unused", "vllm", "whatever", "x", "xxx", "your",
))
# fmt: on


def is_distinctive(value: str) -> bool:
    """False for values that other texts contain by chance: short ones, single words, placeholders."""
    if len(value) < SHORTEST or len(set(value)) < 4:
        return False
    if value.isalpha() and len(value) < 2 * SHORTEST:
        return False
    return not set(re.split(r"[\W_]+", value.lower())) - {""} <= _PLACEHOLDERS


def keys_in(text: str) -> Iterator[str]:
    """The keys in a configured value: all of it, the words of a header, the password and the parameters of a URL."""
    scheme, separator, rest = text.partition("://")
    if separator and scheme.isalnum():
        place = re.split(r"[/?#]", rest, maxsplit=1)[0]
        user, colon, password = place.rpartition("@")[0].partition(":")
        yield from _url_spellings_of(password)
        if password and not is_distinctive(password):
            # Other texts may contain the password by chance, but hardly together with its surroundings.
            yield f"://{user}:{password}@"
        if not colon or len(user) >= _SHORTEST_USER:
            yield from _url_spellings_of(user)
        for name, value in re.findall(r"[?&;]([^=&;#]+)=([^&;#]+)", rest):
            if re.search(SECRET_WORD, name):
                yield from _url_spellings_of(value)
                if not is_distinctive(value):
                    yield f"{name}={value}"
        return
    words = re.split(r"[\s;,]+", text.strip())
    if len(words) > 1:
        yield text.strip()
    for word in words:
        yield word
        name, equals, value = word.partition("=")
        if equals and value.strip("="):
            yield value
    if len(words) == 2 and words[0].lower() == "basic":
        from binascii import a2b_base64

        try:
            yield a2b_base64(words[1] + "==").decode("utf-8", "replace").partition(":")[2]
        except ValueError:
            return


def _url_spellings_of(part: str) -> tuple[str, ...]:
    """A part of a URL as written and as decoded."""
    meant = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), part.encode("utf-8", "replace"))
    return tuple(dict.fromkeys(spelling for spelling in (part, meant.decode("utf-8", "replace")) if spelling))


# --- its forms --------------------------------------------------------------------------------------------------------


# Characters that every encoder leaves unchanged.
_PLAIN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_SAFE_IN_URLS = (_PLAIN + b"~", _PLAIN + b"~/", _PLAIN + b"!~*'()", _PLAIN + b"*")


def encoded_forms_of(key: str) -> tuple[set[bytes], set[bytes]]:
    """The forms of a key in other texts: those in one piece, and those that are broken into lines."""
    raw = key.encode("utf-8", "surrogatepass")
    hexed = [b"%02x" % byte for byte in raw]
    whole = {raw, repr(key)[1:-1].encode("utf-8", "replace"), codec.encode(key)[1:-1]}
    if not raw.isascii():
        whole |= {re.sub(rb"[^ -~]", _json_escape, form) for form in list(whole)}
    whole.add(raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"/", b"\\/"))
    for ampersands in (b"&#x27;", b"&#39;", b"&apos;"):
        escaped = raw.replace(b"&", b"&amp;").replace(b"<", b"&lt;").replace(b">", b"&gt;")
        whole |= {escaped, escaped.replace(b'"', b"&quot;").replace(b"'", ampersands)}
    for safe in _SAFE_IN_URLS:
        upper = b"".join(b"%c" % byte if byte in safe else b"%%%02X" % byte for byte in raw)
        lower = b"".join(b"%c" % byte if byte in safe else b"%%%02x" % byte for byte in raw)
        whole |= {upper, lower, upper.replace(b"%20", b"+"), lower.replace(b"%20", b"+")}
    whole |= {b"%" + b"%".join(hexed), b"%" + b"%".join(digits.upper() for digits in hexed)}
    broken = {b"".join(hexed), b"".join(hexed).upper()}
    for base in base64_cores(raw):
        broken |= {
            base,
            base.translate(bytes.maketrans(b"+/", b"-_")),
            base.replace(b"+", b"%2B").replace(b"/", b"%2F"),
        }
        whole.add(base.replace(b"/", b"\\/"))
    # Most texts are sent as JSON, and a text may have been JSON before.
    for _ in range(2):
        whole |= {form.replace(b"\\", b"\\\\").replace(b'"', b'\\"') for form in list(whole)}
    for form in fully_escaped_forms_of(raw):
        whole |= {form, form.replace(b"\\", b"\\\\")}
    return {form for form in whole if len(form) >= SHORTEST}, {form for form in broken if len(form) >= SHORTEST}


def base64_cores(raw: bytes) -> list[bytes]:
    """The characters that a key produces in any base64 text that contains it, for each of the three possible
    offsets."""
    cores = []
    for before in range(3):
        padded = bytes(before) + raw + bytes(-(before + len(raw)) % 3)
        encoded = b2a_base64(padded, newline=False)
        cores.append(encoded[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6])
    return cores


def longest_plain_part_of(raw: bytes) -> bytes:
    """The longest part of a key that hardly any program escapes: letters and digits."""
    return max(raw.translate(_SIGNS_AS_SPACES).split(), key=len, default=b"")


def escaped_pattern(raw: bytes) -> bytes:
    """A pattern for a key in which any characters may be escaped, since programs differ in which ones they escape."""
    characters = [b"(?:" + b"|".join(_escape_patterns_of(byte)) + b")" for byte in raw]
    # Whole or not at all: half of a row of backslashes would escape the replacement of the key.
    before = rb"(?<!\\)" if raw[:1] in b'"\\' else rb"(?:(?<!\\)|(?!\\))"
    return before + b"".join(characters)


def fully_escaped_forms_of(raw: bytes) -> set[bytes]:
    """The forms in which every character is escaped."""
    styles = (b"\\u00%02x", b"\\u00%02X", b"\\x%02x", b"\\x%02X", b"\\%03o", b"&#%d;", b"&#x%x;", b"&#x%X;")
    return {b"".join(style % byte for byte in raw) for style in styles}


def _escape_patterns_of(byte: int) -> Iterator[bytes]:
    """The ways to write one character. Repetitions are bounded, so that a text cannot make the search slow."""
    sign, code = re.escape(bytes([byte])), b"(?i:%02x)" % byte
    yield sign
    yield rb"\\{1,8}(?:(?:u00|x)%b|u\{%b\}|%03o)" % (code, code, byte)
    yield rb"%%(?:25){0,4}%b" % code
    named = b"|".join(name + b";" for name in _NAMED_SIGNS.get(byte, ()))
    yield rb"&(?:amp;){0,4}(?:#0{0,4}%d;|#[xX]0{0,4}%b;%b)" % (byte, code, b"|" + named if named else b"")
    if not bytes([byte]).isalnum() and byte < _ASCII:
        yield rb"\\{1,8}%b" % sign


_ASCII = 128
_SIGNS_AS_SPACES = bytes(byte if b"%c" % byte in _PLAIN[:-3] else 32 for byte in range(256))
_NAMED_SIGNS = {
    ord("&"): (b"amp", b"AMP"),
    ord("<"): (b"lt", b"LT"),
    ord(">"): (b"gt", b"GT"),
    ord('"'): (b"quot", b"QUOT"),
    ord("'"): (b"apos",),
    ord("+"): (b"plus",),
    ord("="): (b"equals",),
    ord("/"): (b"sol",),
    ord("%"): (b"percnt",),
}
_ESCAPE_SIGNS = (b"\\", b"%", b"&")
_LONGEST_ESCAPE = 28
_SHORTEST_ANCHOR = 3
# One escaped character; and the beginning of an escape at the end of a text.
_ONE_ESCAPE = (
    rb"\\{1,8}(?:(?:u00|x)([0-9A-Fa-f]{2})|u\{([0-9A-Fa-f]{2})\}|([0-7]{3}))|%(?:25){0,4}([0-9A-Fa-f]{2})"
    rb"|&(?:amp;){0,4}(?:#0{0,4}([0-9]{2,3});|#[xX]0{0,4}([0-9A-Fa-f]{2});|([A-Za-z]{2,6});)|\\{1,8}([^\\])"
)
_CUT_ESCAPE = rb"(?:\\{1,8}(?:u\{?|x)?[0-9A-Fa-f]{0,4}|%[0-9A-Fa-f]{0,9}|&(?:amp;){0,4}[#\w]{0,9})\Z"
_BASES = (16, 16, 8, 16, 10, 16)


def _unescape_byte(found: re.Match[bytes]) -> bytes:
    """The byte that an escape represents."""
    for digits, base in zip(found.groups()[:6], _BASES, strict=True):
        if digits is not None:
            return bytes([int(digits, base) & 0xFF])
    named = found[7]
    if named is not None:
        return next((bytes([byte]) for byte, names in _NAMED_SIGNS.items() if named in names), b"&")
    return found[8]


def _json_escape(found: re.Match[bytes]) -> bytes:
    return b"\\u00%02x" % found[0][0]


# --- finding and masking ----------------------------------------------------------------------------------------------

_LINE_BREAKS = b"\r\n"
# A line break in the text itself, or as it stands in a JSON string.
_BETWEEN = rb"(?:\r?\n|\\r|\\n){0,2}"
_WHERE_BROKEN = 4
_LEAD = 4


# The label of a configured value, with the variables that it comes from (`X-Team $TEAM`), and the value.
Labelled = tuple[str, str]


def _is_key(label: str, text: str) -> bool:
    """True if the label or the text looks like that of a key, or if it comes from a variable that few commands need."""
    if re.search(SECRET_WORD, label):
        return True
    variables = re.findall(r"\$(\w+)", label)
    if variables:
        return not NEEDED.issuperset(variables) and not (text.startswith("/") and os.path.lexists(text))
    return re.search(_HARMLESS_WORD, label) is None and re.fullmatch(_RANDOM, text) is not None


def _label_proxy(address: str) -> Labelled:
    return "proxy", address if "://" in address else f"http://{address}"


class Redactor:
    """The keys of one agent. It learns them from its sources and forgets none, since an old key may still be valid.

    The registry passes it each key before the key is used, and `refresh`, which reads the sources, is called before
    each command starts, because the environment may have changed.
    """

    def __init__(self) -> None:
        self._sources: list[tuple[Callable[[], Iterable[Labelled]], bool]] = []
        self._named: list[Callable[[], Iterable[str]]] = []
        self._asked = False
        self._values: dict[str, None] = {}
        self._of_providers: set[str] = set()
        self._whole: tuple[bytes, ...] = ()
        self._broken: tuple[bytes, ...] = ()
        self._forms: tuple[bytes, ...] = ()
        self._by_sign: tuple[tuple[bytes, bytes, tuple[bytes, ...]], ...] = ()
        self._texts: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
        self._beginnings: tuple[_Beginnings, _Beginnings, _Beginnings, _Beginnings] | None = None
        self._anchors: tuple[tuple[bytes, bytes], ...] = ()
        self._escaped: dict[bytes, re.Pattern[bytes]] = {}
        self.longest = self.longest_key = 0

    def add_source(
        self,
        source: Callable[[], Iterable[Labelled]],
        variables: Callable[[], Iterable[str]] = tuple,
        *,
        of_providers: bool = False,
    ) -> None:
        """Learn keys from this source from now on; `variables` are those that the keys come from.

        Keys `of_providers` open model servers; `has_provider_key` finds only those.
        """
        self._sources.append((source, of_providers))
        self._named.append(variables)
        self._asked = False

    def add_variables_source(self, variables: Mapping[str, str], keys: Collection[str]) -> None:
        """Learn the keys in these variables from now on, and what stands in the addresses of proxies.

        `keys` are the names of variables that hold keys, besides those that any program knows.
        """
        # By name, because an extension may take a variable away meanwhile.
        self.add_source(
            lambda: [(name, variables.get(name, "")) for name in list(variables) if is_secret_name(name, keys)],
            of_providers=True,
        )
        self.add_source(lambda: [_label_proxy(variables.get(name, "")) for name in list(variables) if is_proxy(name)])

    def add_proxy_source(self, address: str) -> None:
        """Learn the keys in the address of a proxy."""
        self.add_source(lambda: [_label_proxy(address)])

    def is_secret_variable(self, variable: str) -> bool:
        """Whether a variable holds a key, by its name or because a key comes from it."""
        return is_secret_name(variable, self.list_key_variables())

    def list_key_variables(self) -> set[str]:
        return {name for named in self._named for name in named()}

    def learn_from_sources(self) -> None:
        """Read all sources again, and learn new keys."""
        self._asked = True
        for source, of_providers in self._sources:
            self.learn_keys(source(), of_providers=of_providers)

    def learn_keys(self, values: Iterable[Labelled], *, of_providers: bool = False) -> None:
        """Learn the keys in these values; those that are too common to be masked are skipped."""
        known = self._of_providers if of_providers else self._values
        found = {
            key: None
            for label, text in values
            if text not in known and ("://" in text or _is_key(label, text))
            # A value labelled as a key is one, even if it looks like an address.
            for key in ((text, *keys_in(text)) if label.startswith(KEY) else keys_in(text))
        }
        if of_providers:
            self._of_providers.update(filter(is_distinctive, found))
        new = [key for key in found if key not in self._values and is_distinctive(key)]
        new = new[: MOST_VALUES - len(self._values)]
        if not new:
            return
        self._values.update(dict.fromkeys(new))
        whole, broken = set(self._whole), set(self._broken)
        for key in new:
            more_whole, more_broken = encoded_forms_of(key)
            whole |= more_whole
            broken |= more_broken
        # The longest first, so that a key which contains another is masked as a whole.
        self._whole = tuple(sorted(whole, key=len, reverse=True))
        self._broken = tuple(sorted(broken, key=len, reverse=True))
        self._forms = tuple(sorted(whole | broken, key=len, reverse=True))
        self._by_sign = _group_by_escape(self._forms)
        self._texts = tuple(
            (escape.decode(), sign.decode("utf-8", "ignore"), tuple(form.decode("utf-8", "replace") for form in forms))
            for escape, sign, forms in self._by_sign
        )
        self._beginnings = None
        plain = [key.encode("utf-8", "surrogatepass") for key in self._values]
        self.longest_key = max(map(len, plain))
        self._anchors = tuple(
            (longest_plain_part_of(key), key) for key in plain if len(longest_plain_part_of(key)) >= _SHORTEST_ANCHOR
        )
        self.longest = max(map(len, self._forms), default=0)

    def make_stream_masker(self) -> Callable[[bytes, bool], bytes]:
        """Masks bytes that come in pieces: called with each piece, and whether it is the last."""
        return RedactedStream(self).feed

    def mask_result(self, message: ToolResultMessage) -> ToolResultMessage:
        """The result of a tool with masked keys, for model, host and file."""
        blocks = [self._mask_block(block) for block in message.content]
        if blocks != message.content:
            message = replace(message, content=blocks)
        if message.details:
            details = codec.encode(message.details)
            masked = self.mask(details)
            if masked != details:
                message = replace(message, details=codec.decode(masked))
        return message

    def _mask_block(self, block: TextContent | ImageContent) -> TextContent | ImageContent:
        if isinstance(block, TextContent):
            return replace(block, text=self.mask_text(block.text))
        # An image with a part of its data masked would be broken.
        return TextContent(text=IMAGE_WITH_KEY) if self.has_key(block.data) else block

    def has_provider_key(self, text: str) -> bool:
        """True if the text contains a key of a model provider, in any form; the sources are read again."""
        self.learn_from_sources()
        data = text.encode("utf-8", "surrogatepass")
        return any(form in data for key in self._of_providers for forms in encoded_forms_of(key) for form in forms)

    def has_key(self, text: str) -> bool:
        """True if the text contains a readable key."""
        return self.mask_text(text) != text

    def mask_text(self, text: str) -> str:
        """The text with every form of every key masked."""
        if not self._asked:
            self.learn_from_sources()
        if not self._forms:
            return text
        joined = text.replace("\n", "").replace("\r", "") if "\n" in text else ""
        if not (self._contains_key(text) or self._may_be_escaped(text) or self._contains_key(joined)):
            return text
        return self.mask(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def _contains_key(self, text: str) -> bool:
        return any(
            form in text for escape, sign, forms in self._texts if escape in text and sign in text for form in forms
        )

    def _may_be_escaped(self, text: str) -> bool:
        return any(anchor.decode() in text for anchor, _ in self._anchors) and any(
            sign.decode() in text for sign in _ESCAPE_SIGNS
        )

    def mask(self, data: bytes) -> bytes:
        """The same for text as UTF-8, and for lines of JSON."""
        if not self._asked:
            self.learn_from_sources()
        for escape, sign, forms in self._by_sign:
            # Searching for one byte is eighty times faster than for two or three.
            if escape in data and sign in data:
                for form in forms:
                    if form in data:
                        data = data.replace(form, _MASKED)
        for anchor, key in self._anchors:
            if anchor in data and any(sign in data for sign in _ESCAPE_SIGNS):
                if key not in self._escaped:
                    self._escaped[key] = re.compile(escaped_pattern(key))
                data = self._escaped[key].sub(_MASKED, data)
        if self._broken and (b"\n" in data or b"\\n" in data):
            joined = _remove_line_breaks(data)
            for form in self._broken:
                if form in joined:
                    spread = _BETWEEN.join(re.escape(form[at : at + 1]) for at in range(len(form)))
                    data = re.sub(spread, _MASKED, data)
        return data

    def knows_keys(self) -> bool:
        """Whether there is anything to mask; what was learned is never forgotten."""
        if not self._asked:
            self.learn_from_sources()
        return bool(self._forms)

    def find_growing(self, data: bytes) -> int:
        """The position at the end of the data where the beginning of a form contains a shorter form."""
        return self._form_beginnings()[0].find_open_beginning(data)

    def _form_beginnings(self) -> tuple[_Beginnings, _Beginnings, _Beginnings, _Beginnings]:
        """The beginnings of forms that begin with another, of all forms, of those that may be broken into lines, and of
        the keys themselves.

        Made for the first stream.
        """
        if self._beginnings is None:
            forms, sizes = set(self._forms), {len(form) for form in self._forms}
            longer = [form for form in forms if any(form[:size] in forms for size in sizes if size < len(form))]
            plain = [key.encode("utf-8", "surrogatepass") for key in self._values]
            self._beginnings = (
                _Beginnings(longer),
                _Beginnings(forms),
                _Beginnings(self._broken),
                _Beginnings(plain),
            )
        return self._beginnings

    def find_unfinished(self, data: bytes) -> int:
        """The position at the end of the data where a form begins that later data may complete."""
        _, whole, over_lines, _ = self._form_beginnings()
        first = min(whole.find_open_beginning(data), self._unfinished_escapes(data))
        # A form may be broken into lines, even of one character each.
        tail = data[-3 * self.longest :]
        if b"\n" not in tail:
            return first
        joined = tail.translate(None, _LINE_BREAKS)
        left = len(joined) - over_lines.find_open_beginning(joined)
        if left < _WHERE_BROKEN:
            return first
        at = len(tail)
        while left:
            at -= 1
            left -= tail[at] not in _LINE_BREAKS
        return min(first, len(data) - len(tail) + at)

    def _unfinished_escapes(self, data: bytes) -> int:
        """The same for keys in which some characters are escaped, of which the last may be in two pieces."""
        tail = data[-_LONGEST_ESCAPE * self.longest_key :] if self._anchors else b""
        if not any(sign in tail for sign in _ESCAPE_SIGNS):
            return len(data)
        cut = re.search(_CUT_ESCAPE, tail)
        body = tail if cut is None else tail[: cut.start()]
        plain = re.sub(_ONE_ESCAPE, _unescape_byte, body)
        at = self._form_beginnings()[3].find_open_beginning(plain)
        if at == len(plain):
            return len(data) - len(tail) + len(body)
        # Finding that position in the text is rarely needed, so it may be slow.
        places = [found.start() for found in re.finditer(_ONE_ESCAPE + b"|(?s:.)", body)]
        return len(data) - len(tail) + places[at]


def _group_by_escape(forms: tuple[bytes, ...]) -> tuple[tuple[bytes, bytes, tuple[bytes, ...]], ...]:
    """The forms in groups, each with an escape that a text must contain for any of them to occur, and its first byte;
    last those without one."""
    groups: dict[bytes, list[bytes]] = {}
    for form in forms:
        places = [place for place in map(form.find, _ESCAPE_SIGNS) if place >= 0]
        groups.setdefault(form[min(places) :][:3] if places else b"", []).append(form)
    plain = groups.pop(b"", [])
    return (*((sign[:1], sign, tuple(group)) for sign, group in groups.items()), (b"", b"", tuple(plain)))


class _Beginnings:
    """Finds the beginning of a form at the end of a text, with one short search for all forms together."""

    def __init__(self, forms: Iterable[bytes]) -> None:
        self._by_lead: dict[bytes, list[bytes]] = {}
        for form in forms:
            self._by_lead.setdefault(form[:_LEAD], []).append(form)
        self._starts = {lead[:size] for lead in self._by_lead for size in range(1, _LEAD)}
        self._longest = max((len(form) for listed in self._by_lead.values() for form in listed), default=0)
        leads = b"|".join(map(re.escape, self._by_lead))
        self._search = re.compile(b"(?=(" + leads + b"))").finditer if leads else None

    def find_open_beginning(self, data: bytes) -> int:
        """The first position from which the rest of the data begins a form; the end of the data if there is none."""
        if self._search is None:
            return len(data)
        tail = data[-self._longest + 1 :]
        before = len(data) - len(tail)
        for found in self._search(tail):
            rest = tail[found.start() :]
            if any(len(form) > len(rest) and form.startswith(rest) for form in self._by_lead[found[1]]):
                return before + found.start()
        for size in range(min(_LEAD - 1, len(tail)), 0, -1):
            if tail[-size:] in self._starts:
                return len(data) - size
        return len(data)


def _remove_line_breaks(data: bytes) -> bytes:
    """The data without line breaks, including those escaped in JSON."""
    joined = data.translate(None, _LINE_BREAKS) if b"\r" in data else data.replace(b"\n", b"")
    return joined.replace(b"\\n", b"").replace(b"\\r", b"") if b"\\" in joined else joined


class RedactedStream:
    """Masks a stream of bytes that comes in pieces: the beginning of a key waits for the following bytes."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, data: bytes, final: bool = False) -> bytes:
        """The bytes that can be shown by now; a possible beginning of a key waits for the next piece."""
        if not self._redactor.knows_keys():
            return data
        data = self._held + data
        if final:
            self._held = b""
            return self._redactor.mask(data)
        end = self._redactor.find_growing(data)
        masked = self._redactor.mask(data[:end])
        at = self._redactor.find_unfinished(masked)
        self._held = masked[at:] + data[end:]
        return masked[:at]


class RedactedText:
    """A text stream in front of another, such as stderr, that never shows a key.

    Text that cannot be written, such as on a full disk, is lost unless it is `required`: no work may fail because its
    diagnostics did.
    """

    def __init__(self, stream: TextIO, mask_text: Callable[[str], str], *, required: bool = False) -> None:
        self._stream = stream
        self._mask_text = mask_text
        self._unnoticed = () if required else (OSError,)

    def write(self, text: str) -> int:
        """Write the text masked; returns its length, as streams do."""
        masked = self._mask_text(text)
        with suppress(*self._unnoticed):
            self._stream.write(masked)
        return len(text)

    def flush(self) -> None:
        with suppress(*self._unnoticed):
            self._stream.flush()

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
