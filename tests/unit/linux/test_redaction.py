"""Secrets in text of drivers."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from kubeletx.linux.redaction import Redactor

secrets = st.text(min_size=1, max_size=40).filter(lambda text: bool(text.strip()))
words = st.text(max_size=10)


@given(secrets, words, words)
def test_no_form_of_a_secret_is_left(secret: str, before: str, after: str) -> None:
    data = secret.encode("utf-8", "replace")
    secret = data.decode()
    redactor = Redactor({"key": data})
    for form in (
        secret,
        base64.b64encode(data).decode(),
        base64.urlsafe_b64encode(data).decode(),
        data.hex(),
        json.dumps(secret)[1:-1],
        quote(secret, safe=""),
    ):
        cleaned = redactor.clean(f"{before} {form} {after}").replace("[secret]", "")
        assert form not in cleaned or form in f"{before} {after}" or form in "  "


def test_a_secret_without_its_line_feed_and_each_line_of_it_are_replaced() -> None:
    redactor = Redactor(
        {"one": b"hunter2\n", "pem": b"-----BEGIN KEY-----\nMIIBOgIBAAJB\n-----END KEY-----\n"}
    )
    assert redactor.clean("password hunter2!") == "password [secret]!"
    assert redactor.clean("key MIIBOgIBAAJB") == "key [secret]"


def test_text_without_secrets_stays() -> None:
    assert Redactor({"key": b""}).clean("text") == "text"
    assert Redactor().clean("text") == "text"


def test_a_longer_secret_is_replaced_before_a_part_of_it() -> None:
    assert Redactor({"a": b"pass", "b": b"password"}).clean("my password") == "my [secret]"


def test_it_does_not_print_the_secrets() -> None:
    assert "hunter2" not in repr(Redactor({"key": b"hunter2"}))
