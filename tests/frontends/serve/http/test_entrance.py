"""Where a request comes from and which token it has, without a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection, Request

from pigeon.frontends.serve.counts import ServeCounts
from pigeon.frontends.serve.http.entrance import MOST_WRONG, WRONG_SECONDS, Entrance, HttpRefusal, WrongTokens
from pigeon.frontends.serve.http.tokens import COOKIE_SECONDS, LINK_SECONDS, Tokens
from pigeon.wire.errors import Refusal, StartupError

SECRET = "a-token-of-thirty-characters-or-so"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(tmp_path: Path, clock: Clock) -> Tokens:
    return tokens_of(tmp_path, f"admin {SECRET} me\nread {SECRET}-read\n", clock)


def tokens_of(folder: Path, text: str, clock: Clock) -> Tokens:
    path = folder / "serve.token"
    path.write_text(text)
    path.chmod(0o600)
    return Tokens(str(path), clock, clock)


def request(headers: dict[str, str], *, path: str = "/api/sessions", peer: str = "127.0.0.1") -> Request:
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    about = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": raw, "scheme": "http"}
    return Request({**about, "client": (peer, 1), "server": ("10.0.0.1", 7463)})


def entrance(tokens: Tokens, *names: str, behind_proxy: bool = False, clock: Clock | None = None) -> Entrance:
    return Entrance(tokens, names, ServeCounts(), WrongTokens(clock or Clock()), behind_proxy)


def status_of(checker: Entrance, asked: HTTPConnection) -> int:
    try:
        checker.admit(asked, "read")
    except HttpRefusal as refusal:
        return refusal.status
    return 200


RIGHT = {"Authorization": f"Bearer {SECRET}"}


def test_the_address_of_the_socket_itself_is_ours_and_no_other_address(tokens: Tokens) -> None:
    checker = entrance(tokens, "example.org")
    hosts = {"10.0.0.1:7463": 200, "10.0.0.1": 403, "10.0.0.2:7463": 403, "example.org": 200, "example.org:99": 200}
    for host, status in hosts.items():
        assert status_of(checker, request({"Host": host, **RIGHT})) == status
    assert status_of(checker, request({"Host": "example.org.evil:99", **RIGHT})) == 403


def test_a_proxy_says_what_it_was_asked_for_and_only_its_own_word_counts(tokens: Tokens) -> None:
    checker = entrance(tokens, "example.org", behind_proxy=True)
    said = {"Host": "127.0.0.1:7463", "X-Forwarded-Host": "example.org", "X-Forwarded-Proto": "https", **RIGHT}
    assert status_of(checker, request({**said, "Origin": "https://example.org"})) == 200
    assert status_of(checker, request({**said, "Origin": "http://example.org"})) == 403
    assert status_of(checker, request({**said, "X-Forwarded-Host": "evil.example, example.org"})) == 200
    assert status_of(checker, request({**said, "X-Forwarded-Host": "example.org, evil.example"})) == 403
    assert checker.peer_of(request({**said, "X-Forwarded-For": "1.1.1.1, 2.2.2.2"})) == "2.2.2.2"
    assert checker.scheme_of(request(said)) == "https"
    alone = entrance(tokens, "example.org")
    assert alone.peer_of(request({**said, "X-Forwarded-For": "1.1.1.1"}, peer="3.3.3.3")) == "3.3.3.3"


def test_wrong_tokens_are_counted_by_peer_and_forgotten(tokens: Tokens, clock: Clock) -> None:
    checker = entrance(tokens, "h", clock=clock)
    wrong = {"Host": "h", "Authorization": "Bearer wrong"}
    assert [status_of(checker, request(wrong)) for _ in range(MOST_WRONG)] == [401] * MOST_WRONG
    clock.now += 10
    with pytest.raises(HttpRefusal) as refused:
        checker.admit(request(wrong), "read")
    assert (refused.value.status, refused.value.retry_after) == (429, WRONG_SECONDS - 10)
    assert status_of(checker, request({"Host": "h", **RIGHT})) == 200
    assert status_of(checker, request(wrong, peer="10.9.9.9")) == 401
    clock.now += WRONG_SECONDS - 10
    assert status_of(checker, request(wrong)) == 401


def test_the_page_is_shown_to_whoever_has_a_token_or_a_cookie_and_to_nobody_else(tokens: Tokens) -> None:
    admin = tokens.find_token(SECRET)
    assert admin is not None
    cookie = {"Cookie": f"pigeon_token={tokens.create_cookie(admin)[0]}"}
    checker = entrance(tokens, "h")
    for shown in (RIGHT, cookie, {**cookie, **RIGHT}):
        checker.admit_to_page(request({"Host": "h", **shown}, path="/"))
    wrong = {"Authorization": "Bearer wrong"}
    for refused in ({}, {"Cookie": "pigeon_token=1.x"}, {"Cookie": "other=1"}, wrong, {**cookie, **wrong}):
        with pytest.raises(HttpRefusal) as refusal:
            checker.admit_to_page(request({"Host": "h", **refused}, path="/"))
        assert refusal.value.status == 401, refused


def test_all_addresses_of_an_ipv6_network_are_one_peer(tokens: Tokens) -> None:
    checker = entrance(tokens)
    assert checker.peer_of(request({}, peer="2001:db8::1")) == checker.peer_of(request({}, peer="2001:db8::ffff:1"))
    assert checker.peer_of(request({}, peer="2001:db8::1")) != checker.peer_of(request({}, peer="2001:db8:1::1"))
    assert checker.peer_of(request({}, peer="::ffff:1.2.3.4")) != checker.peer_of(request({}, peer="::ffff:1.2.3.5"))


@given(value=st.text(st.characters(max_codepoint=255, exclude_categories=("Cc",)), max_size=60))
def test_no_other_text_is_a_token(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    tokens = tokens_of(tmp_path_factory.getbasetemp(), f"{SECRET}\n", Clock())
    checker = entrance(tokens, "h")
    assert status_of(checker, request({"Host": "h", "Authorization": f"Bearer {value}"})) == 401
    assert status_of(checker, request({"Host": "h", "Cookie": f"pigeon_token={value}"})) in (401, 403)


def test_a_cookie_holds_for_its_time_and_only_as_long_as_its_token(
    tokens: Tokens, clock: Clock, tmp_path: Path
) -> None:
    admin = tokens.find_first_token("admin")
    assert admin is not None
    cookie, key = tokens.create_cookie(admin)
    assert SECRET not in cookie + key
    assert tokens.find_page_token(cookie, key) == admin
    until, _, proof = cookie.partition(".")
    assert tokens.find_page_token(f"{int(until) + 1}.{proof}", key) is None
    assert tokens.find_page_token(cookie, "") is None
    clock.now += 1
    assert tokens.find_page_token(cookie, tokens.create_cookie(admin)[1]) is None
    clock.now += COOKIE_SECONDS - 1
    assert tokens.find_page_token(cookie, key) is None
    clock.now -= COOKIE_SECONDS
    (tmp_path / "serve.token").write_text(f"read {SECRET}-read\n")
    assert tokens.find_page_token(cookie, key) is None


def test_a_link_is_worth_something_once_and_for_minutes(tokens: Tokens, clock: Clock) -> None:
    word = tokens.create_link("read")
    redeemed = tokens.redeem_link(word)
    assert redeemed is not None
    assert redeemed.scope == "read"
    assert tokens.redeem_link(word) is None
    late = tokens.create_link()
    clock.now += LINK_SECONDS
    assert tokens.redeem_link(late) is None
    with pytest.raises(Refusal, match="no token with the scope talk"):
        tokens.create_link("talk")


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("", 0o600, "has no token"),
        ("short\n", 0o600, "at least 16 characters"),
        (f"owner {SECRET}\n", 0o600, "a line must be a scope"),
        (f"admin {SECRET}\n", 0o640, "can be read by other users"),
    ],
)
def test_a_token_file_that_cannot_be_used_is_said_and_its_tokens_are_not(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    path = tmp_path / "serve.token"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(StartupError, match=said) as refusal:
        Tokens(str(path))
    assert SECRET not in str(refusal.value)


def test_a_token_file_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "serve.token"
    tokens = Tokens(str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    assert tokens.find_token(path.read_text().split()[1]) is not None


def test_a_token_file_that_is_gone_lets_no_client_in_until_it_is_back(tokens: Tokens, tmp_path: Path) -> None:
    path = tmp_path / "serve.token"
    text = path.read_text()
    path.unlink()
    assert tokens.find_token(SECRET) is None
    assert "cannot be read" in tokens.problem
    path.write_text(text)
    path.chmod(0o600)
    assert tokens.find_token(SECRET) is not None
