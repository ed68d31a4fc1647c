"""A server as its connectors reach it: what is shown of its address, and which errors may pass."""

from __future__ import annotations

import pytest

from topo.config.secrets import Secret, without_password
from topo.connectors.addresses import parsed
from topo.connectors.remote import Remote
from topo.errors import ComponentError, TopoError, Unavailable


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://ann:pw@host/x", "http://ann:***@host/x"),
        ("redis://ann:p@ss@host:1/0", "redis://ann:***@host:1/0"),
        ("mongodb://ann:p/w@host", "mongodb://ann:***@host"),
        ("http://ann:p?w#x@host", "http://ann:***@host"),
        ("http://ann:p w@host", "http://ann:***@host"),
        ("mongodb://ann:pw@a:1,b:2/db?x=a@b", "mongodb://ann:***@a:1,b:2/db?x=a@b"),
        ("amqp://:pw@host", "amqp://:***@host"),
        ("http://ann:pw@[::1]:80/a@b", "http://ann:***@[::1]:80/a@b"),
        ("http://host:8080/@ann", "http://host:8080/@ann"),
        ("http://[::1]:80/@ann", "http://[::1]:80/@ann"),
        ("mongodb://a:1,b:2/?x=y@z", "mongodb://a:1,b:2/?x=y@z"),
        ("http://host:80", "http://host:80"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_a_password_is_hidden_where_the_scheme_is_left_out() -> None:
    address = parsed("SocketSpout", Secret("ann:pw@host:99"), {"tcp": 9})
    assert (address.shown, address.password) == ("ann:***@host:99", "pw")
    with pytest.raises(ComponentError) as caught:
        parsed("SocketSpout", "ann:pw@host:x", {"tcp": 9})
    assert "url='ann:***@host:x'" in caught.value.message


class _Shop(Remote):
    """Its client raises OSError for a lost connection, and KeyError for what is not there."""

    def in_words(self, error: BaseException) -> Exception | None:
        if isinstance(error, OSError):
            return self.unavailable(error, 3.0)
        return self.refused(f"no {error}", "look again") if isinstance(error, KeyError) else None


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (OSError("gone"), Unavailable, "ShopBolt: the shop: gone"),
        (KeyError("tea"), ComponentError, "ShopBolt: the shop: no 'tea'"),
        (ComponentError("of somebody else"), ComponentError, "of somebody else"),
        (ZeroDivisionError("a bug"), ZeroDivisionError, "a bug"),
        (KeyboardInterrupt("stop"), KeyboardInterrupt, "stop"),
    ],
)
def test_errors_of_a_client_become_those_of_topo(
    error: BaseException, kind: type[BaseException], message: str
) -> None:
    with pytest.raises(kind) as caught, _Shop("ShopBolt", "the shop").reaching():
        raise error
    assert type(caught.value) is kind
    text = caught.value.message if isinstance(caught.value, TopoError) else str(caught.value)
    assert text == message
    if caught.value is not error:
        assert caught.value.__cause__ is error
