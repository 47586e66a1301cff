"""Addresses of stores: what they may be, and what of them is shown."""

from __future__ import annotations

import pytest

from pigeon.store.addresses import check_address, hide_password, mask_secrets
from pigeon.wire.errors import StartupError


@pytest.mark.parametrize("url", ["postgresql://h/d", "postgres://u:p@h,i/d?x=y", "pgserver:", "pgserver:/x", "file:"])
def test_known_addresses_are_accepted(url: str) -> None:
    assert check_address(url) == url


@pytest.mark.parametrize("url", ["", "mysql://u:pw-geheim@h/d", "/some/folder", "redis:x", "postgresql:h"])
def test_unknown_addresses_are_refused_with_the_known_ones(url: str) -> None:
    with pytest.raises(StartupError, match=r"postgresql://") as failure:
        check_address(url)
    assert "geheim" not in str(failure.value)


def test_a_password_is_nowhere_in_what_is_shown() -> None:
    url = "postgresql://ada:p%40ss:w@h:5/d?sslmode=require&password=other"
    assert hide_password(url) == "postgresql://ada@h:5/d?sslmode=require&password=***"
    assert mask_secrets('cannot use "p@ss:w" or\n p%40ss:w, other', url) == 'cannot use "***" or ***, ***'
