"""Reads the configuration of credential providers, CredentialProviderConfig, once at the agent's start.

    --image-credential-provider-config   a file, or a directory: its *.json, *.yaml and *.yml are read, sorted by name
    --image-credential-provider-bin-dir  directory of the programs; a provider's name is its program's name

The error names every mistake. A provider that could never work is a mistake too: a pattern with a scheme, a missing
program.
Source: kubelet v1.36, pkg/credentialprovider/plugin/config.go and kubelet.config.k8s.io/v1, CredentialProviderConfig.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeletx.api import InvalidConfig
from kubeletx.kube.text.duration import parse_duration
from kubeletx.kube.text.type_errors import explain
from kubeletx.kube.text.yaml import YamlError, parse_documents

from ..endpoints.problems import raise_all

KIND: Final = "CredentialProviderConfig"
CONFIG_GROUP: Final = "kubelet.config.k8s.io"
PROVIDER_GROUP: Final = "credentialprovider.kubelet.k8s.io"
VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
PROVIDER_V1: Final = f"{PROVIDER_GROUP}/v1"
CACHE_TYPES: Final = ("ServiceAccount", "Token")

_SUFFIXES: Final = (".json", ".yaml", ".yml")
_PATTERN: Final = re.compile(r"(?:[A-Za-z0-9_.*?^\[\]-]+|\[[0-9a-fA-F:]+\])(?::[0-9]+)?(?:/[^\s*?]*)?")
_ANNOTATION: Final = re.compile(r"(?:[a-z0-9.-]{1,253}/)?[a-z0-9](?:[a-z0-9_.-]{0,61}[a-z0-9])?")
_CONFIG_VERSIONS: Final = tuple(f"{CONFIG_GROUP}/{version}" for version in VERSIONS)
_PROVIDER_VERSIONS: Final = tuple(f"{PROVIDER_GROUP}/{version}" for version in VERSIONS)


class Strict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of structs that refuse unknown fields, as the kubelet's decoder does."""


class TokenAttributes(Strict, frozen=True, kw_only=True):
    """Field tokenAttributes of a provider: the provider gets a token of the pod's service account.

    `cache_type`: ``ServiceAccount`` to cache the provider's answers for the account, ``Token`` to cache them only for
    the token.
    """

    service_account_token_audience: str = ""
    require_service_account: bool | None = None
    cache_type: str = ""
    required_service_account_annotation_keys: tuple[str, ...] = ()
    optional_service_account_annotation_keys: tuple[str, ...] = ()


class EnvironmentVariable(Strict, frozen=True, kw_only=True):
    """An environment variable for the provider's program. The value may be a secret, so the repr hides it."""

    name: str
    value: str

    def __repr__(self) -> str:
        return f"EnvironmentVariable(name={self.name!r}, ...)"


class ProviderFields(Strict, frozen=True, kw_only=True):
    """Fields of one provider as in the configuration file, with the right types but not checked yet."""

    name: str = ""
    match_images: tuple[str, ...] = ()
    default_cache_duration: str | None = None
    api_version: str = ""
    args: tuple[str, ...] = ()
    env: tuple[EnvironmentVariable, ...] = ()
    token_attributes: TokenAttributes | None = None


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """One checked credential provider.

    `program`: path of its program. `token`: None if the provider gets no service account token.
    """

    name: str
    program: Path
    match_images: tuple[str, ...]
    default_cache_seconds: float
    api_version: str = PROVIDER_V1
    args: tuple[str, ...] = ()
    env: tuple[EnvironmentVariable, ...] = ()
    token: TokenAttributes | None = None


class ProviderPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All credential providers, in configured order.

    `digest`: ``sha256:...`` of the configuration files, for a metric; empty without files.
    """

    providers: tuple[Provider, ...] = ()
    digest: str = ""


def read_providers(config: Path, bin_dir: Path) -> ProviderPlan:
    """Read and check the providers in `config`, a file or a directory. `bin_dir`: directory of their programs.

    Raises InvalidConfig for one mistake, `InvalidConfigs` for several.
    """
    hashed = hashlib.sha256()
    providers: list[Provider] = []
    problems: list[InvalidConfig] = []
    seen: dict[str, str] = {}
    if not bin_dir.is_dir():
        text, fix = "is not a directory", "correct --image-credential-provider-bin-dir"
        problems.append(InvalidConfig(obj=str(bin_dir), field="", problem=text, fix=fix))
    for path in _files(config):
        data = _read(path)
        hashed.update(len(data).to_bytes(8, "big") + data)  # as in the kubelet's metric
        try:
            raws = _providers(path, data)
        except InvalidConfig as error:
            problems.append(error)
            continue
        for at, (raw, has_tokens) in enumerate(raws):
            checked = _Checked(str(path), at, raw, has_tokens)
            checked.check(bin_dir, seen)
            problems += checked.problems
            if checked.provider is not None:
                providers.append(checked.provider)
    raise_all(problems)
    return ProviderPlan(providers=tuple(providers), digest=f"sha256:{hashed.hexdigest()}")


def _files(config: Path) -> Sequence[Path]:
    fix = "correct --image-credential-provider-config or the file's rights"
    try:
        if not config.is_dir():
            return (config,)
        files = sorted(path for path in config.iterdir() if path.suffix in _SUFFIXES and not path.is_dir())
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise InvalidConfig(obj=str(config), field="", problem=problem, fix=fix) from error
    if not files:
        problem = f"holds no {', '.join(f'*{suffix}' for suffix in _SUFFIXES)}"
        raise InvalidConfig(obj=str(config), field="", problem=problem, fix="put a file there")
    return files


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidConfig(
            obj=str(path),
            field="",
            problem=f"cannot be read: {error.strerror}",
            fix="correct --image-credential-provider-config or the file's rights",
        ) from error


def _providers(path: Path, data: bytes) -> list[tuple[Any, bool]]:
    """Parse a file; return its providers, each with True if the file's version supports tokenAttributes."""

    def refused(field: str, problem: str, fix: str) -> InvalidConfig:
        return InvalidConfig(obj=str(path), field=field, problem=problem, fix=fix)

    try:
        documents = parse_documents(data.decode())
    except UnicodeDecodeError as error:
        raise refused(f"byte {error.start}", "is not UTF-8", "save the file as UTF-8") from error
    except YamlError as error:
        raise refused(f"line {error.line}" if error.line else "", error.problem, error.fix) from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        content = f"{len(documents)} documents" if len(documents) != 1 else "no map of fields"
        raise refused("", f"holds {content}", f"write one {KIND}")
    document = dict(documents[0])
    kind, version = document.pop("kind", None), document.pop("apiVersion", None)
    if kind != KIND:
        raise refused("kind", f"{kind!r} is not supported", f"use {KIND}")
    if version not in _CONFIG_VERSIONS:
        raise refused("apiVersion", f"{version!r} is not supported", f"use {', '.join(_CONFIG_VERSIONS)}")
    providers = document.pop("providers", None)
    if document:
        raise refused(next(iter(document)), "is not a known field", "only providers is allowed")
    if not isinstance(providers, list) or not providers:
        raise refused("providers", "holds no provider", "list at least one")
    return [(raw, version == _CONFIG_VERSIONS[0]) for raw in providers]


class _Checked:
    """Checks one provider of a file. `check` fills `problems` with its mistakes or, if there are none, sets `provider`.

    `at`: index of the provider in the file. `raw`: its undecoded fields. `has_tokens`: the file's version supports
    tokenAttributes.
    """

    def __init__(self, file: str, at: int, raw: Any, has_tokens: bool) -> None:
        self.problems: list[InvalidConfig] = []
        self.provider: Provider | None = None
        self._file = file
        self._raw = raw
        self._has_tokens = has_tokens
        self._who = f"providers[{at}]"
        if isinstance(raw, dict) and isinstance(raw.get("name"), str) and raw["name"]:
            self._who = f'provider "{raw["name"]}"'

    def check(self, bin_dir: Path, seen: dict[str, str]) -> None:
        """Check all fields. `seen`: file of each provider that was checked before, by name; this one is added."""
        fields = self._fields()
        if fields is None:
            return
        self._name(fields.name, bin_dir, seen)
        self._patterns(fields.match_images)
        if fields.api_version not in _PROVIDER_VERSIONS:
            fix = f"use {', '.join(_PROVIDER_VERSIONS)}"
            self._refuse("apiVersion", f"{fields.api_version!r} is not supported", fix)
        seconds = self._duration(fields.default_cache_duration)
        if fields.token_attributes is not None:
            self._tokens(fields, fields.token_attributes)
        if self.problems:
            return
        self.provider = Provider(
            name=fields.name,
            program=bin_dir / fields.name,
            match_images=fields.match_images,
            default_cache_seconds=seconds,
            api_version=fields.api_version,
            args=fields.args,
            env=fields.env,
            token=fields.token_attributes,
        )

    def _refuse(self, field: str, problem: str, fix: str) -> None:
        self.problems.append(
            InvalidConfig(obj=f"{self._file}: {self._who}", field=field, problem=problem, fix=fix)
        )

    def _fields(self) -> ProviderFields | None:
        if not isinstance(self._raw, dict):
            self._refuse("", "is not a map of fields", "start it with '- name: PROGRAM'")
            return None
        raw = {key: value for key, value in self._raw.items() if value is not None}
        try:
            return msgspec.convert(raw, ProviderFields)
        except msgspec.ValidationError as error:
            field, problem, fix = explain(str(error), raw)
            if field.endswith("].value"):
                problem = "is not a string"  # without the value, which may be a secret
            self._refuse(field, problem, fix)
            return None

    def _name(self, name: str, bin_dir: Path, seen: dict[str, str]) -> None:
        if not name or name in (".", "..") or "/" in name or " " in name:
            self._refuse("name", f"{name!r} is not the name of a program", "give it without a directory")
            return
        if name in seen:
            self._refuse("name", f"stands in {seen[name]} already", "name each provider once")
        seen[name] = self._file
        program = bin_dir / name
        if bin_dir.is_dir() and not (program.is_file() and os.access(program, os.X_OK)):
            state = "cannot be run" if program.exists() else "is not there"
            fix = "install it, or correct --image-credential-provider-bin-dir"
            self._refuse("name", f"program {program} {state}", fix)

    def _patterns(self, patterns: Sequence[str]) -> None:
        if not patterns:
            self._refuse("matchImages", "is empty", "list at least one HOST[:PORT][/PATH]")
        for at, pattern in enumerate(patterns):
            if not _PATTERN.fullmatch(pattern):
                fix = "write HOST[:PORT][/PATH] without a scheme; only the host may hold * and ?"
                self._refuse(f"matchImages[{at}]", f"{pattern!r} fits no image", fix)

    def _duration(self, text: str | None) -> float:
        if text is None:
            self._refuse("defaultCacheDuration", "is missing", "set it, for instance to 12h or to 0s")
            return 0.0
        try:
            return parse_duration(text)
        except ValueError as error:
            self._refuse("defaultCacheDuration", f"{text!r} {error}", "write a duration such as 12h")
            return 0.0

    def _tokens(self, fields: ProviderFields, token: TokenAttributes) -> None:
        if not self._has_tokens:
            self._refuse(
                "tokenAttributes", "is not known here", f"set the file's apiVersion to {_CONFIG_VERSIONS[0]}"
            )
        if fields.api_version != PROVIDER_V1:
            problem = f"goes with apiVersion {PROVIDER_V1} only, not with {fields.api_version!r}"
            self._refuse("tokenAttributes", problem, "raise the provider's apiVersion")
        if not token.service_account_token_audience:
            self._refuse("tokenAttributes.serviceAccountTokenAudience", "is missing", "set it")
        if token.require_service_account is None:
            self._refuse("tokenAttributes.requireServiceAccount", "is missing", "set it to true or false")
        if token.cache_type not in CACHE_TYPES:
            problem = f"{token.cache_type!r} is not supported" if token.cache_type else "is missing"
            self._refuse("tokenAttributes.cacheType", problem, f"use {' or '.join(CACHE_TYPES)}")
        required = token.required_service_account_annotation_keys
        optional = token.optional_service_account_annotation_keys
        if required and token.require_service_account is False:
            problem = "is set although requireServiceAccount is false"
            self._refuse(
                "tokenAttributes.requiredServiceAccountAnnotationKeys", problem, "set one of the two"
            )
        for word, keys in (("required", required), ("optional", optional)):
            for at, problem in _key_problems(keys):
                field = f"tokenAttributes.{word}ServiceAccountAnnotationKeys[{at}]"
                self._refuse(field, problem, "name each annotation once, as PREFIX/NAME")
        for key in sorted(set(required) & set(optional)):
            self._refuse(
                "tokenAttributes", f"{key!r} is both required and optional", "leave out one of the two"
            )


def _key_problems(keys: Sequence[str]) -> Iterator[tuple[int, str]]:
    for at, key in enumerate(keys):
        if not _ANNOTATION.fullmatch(key.lower()):
            yield at, f"{key!r} is not the name of an annotation"
        if key in keys[:at]:
            yield at, f"{key!r} is listed twice"
