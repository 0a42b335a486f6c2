"""Runs the program of a credential provider: CredentialProviderRequest on its input, the response on its output.

The token is passed only on the program's standard input. Nothing that the program prints is logged, except the first
line of its standard error, with the token removed. Source: kubelet.config.k8s.io, credentialprovider v1; kubelet,
plugin.go, ExecPlugin.
"""

from __future__ import annotations

import os
from typing import Any, Final, Literal

import msgspec

from kubeletx.api import TimedOut
from kubeletx.kube.text.duration import parse_duration
from kubeletx.linux.programs import ProgramResult, run_program

from .provider_config import Provider, Strict

PROVIDER_SECONDS: Final = 60.0
RESPONSE: Final = "CredentialProviderResponse"
_LONGEST_LINE: Final = 200


class ProviderFailed(Exception):
    """Raised if a provider fails or prints an invalid response. The message contains no secret."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Request to a credential provider.

    `image`: image reference with registry, without tag and digest. `token`, `annotations`: token and chosen annotations
    of the pod's service account; empty if the provider gets none.
    """

    image: str
    token: str = ""
    annotations: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"Question(image={self.image!r}, ...)"


class Login(Strict, frozen=True, kw_only=True):
    """User name and password for a registry. Both may be empty."""

    username: str
    password: str

    def __repr__(self) -> str:
        return "Login(...)"


class ProviderResponse(Strict, frozen=True, kw_only=True):
    """Output of a credential provider.

    `auth`: logins by image pattern. `cache_duration`: how long to cache the answer; None means the configured default.
    `cache_key_type`: the requests for which the cached answer may be used.
    """

    kind: Literal["CredentialProviderResponse"]
    api_version: str
    cache_key_type: Literal["Image", "Registry", "Global"]
    cache_duration: str | None = None
    auth: dict[str, Login] | None = None

    @property
    def cache_seconds(self) -> float | None:
        """Seconds for which to cache the answer: 0 means not at all, None the configured default. Raises ValueError."""
        if self.cache_duration is None:
            return None
        return 0.0 if self.cache_duration.startswith("-") else parse_duration(self.cache_duration)


async def ask(
    provider: Provider, question: Question, *, seconds: float = PROVIDER_SECONDS
) -> ProviderResponse:
    """Run the provider's program for a request and return its response. Raises ProviderFailed.

    After `seconds` the program and its children are killed.
    """
    environment = {**os.environ, **{variable.name: variable.value for variable in provider.env}}
    try:
        result = await run_program(
            [str(provider.program), *provider.args],
            stdin=_request(provider, question),
            seconds=seconds,
            environment=environment,
        )
    except TimedOut as error:
        raise ProviderFailed(f"no answer within {seconds:g} s") from error
    except OSError as error:
        raise ProviderFailed(f"cannot run {provider.program}: {error.strerror}") from error
    if result.exit_code != 0:
        raise ProviderFailed(_end(result, question.token))
    return _answer(provider, result.stdout)


def _request(provider: Provider, question: Question) -> bytes:
    fields: dict[str, Any] = {
        "kind": "CredentialProviderRequest",
        "apiVersion": provider.api_version,
        "image": question.image,
    }
    if question.token:
        fields["serviceAccountToken"] = question.token
    if question.annotations:
        fields["serviceAccountAnnotations"] = dict(question.annotations)
    return msgspec.json.encode(fields)


def _end(result: ProgramResult, token: str) -> str:
    how = f"signal {-result.exit_code}" if result.exit_code < 0 else f"exit code {result.exit_code}"
    text = result.stderr.decode(errors="replace")
    if token:
        text = text.replace(token, "***")
    first = text.strip().partition("\n")[0]
    return f"{how}: {first[:_LONGEST_LINE]}" if first else how


def _answer(provider: Provider, output: bytes) -> ProviderResponse:
    try:
        answer = msgspec.json.decode(output, type=ProviderResponse)
        answer.cache_seconds  # noqa: B018  raises if it is not a duration
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ProviderFailed(f"it printed no {RESPONSE}: {_problem(error)}") from None
    if answer.api_version != provider.api_version:
        version = answer.api_version[:_LONGEST_LINE]
        raise ProviderFailed(f"it answered with apiVersion {version!r}; must be {provider.api_version}")
    return answer


def _problem(error: Exception) -> str:
    """Return a text for a decoding error with names of fields and types, but without values, which may be secrets."""
    text = str(error)
    if isinstance(error, msgspec.ValidationError):
        return text if text.startswith(("Expected", "Object missing")) else f"not valid{_place(text)}"
    return "not JSON" if isinstance(error, msgspec.DecodeError) else "cacheDuration is not a duration"


def _place(text: str) -> str:
    _, at, place = text.partition(" - at ")
    return f" at {place}" if at else ""
