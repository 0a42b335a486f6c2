"""`ConfigField`: a value of a YAML document with its path, for checks whose errors name document, path, found and fix. Pure."""

from __future__ import annotations

from typing import Any

from kubeletx.api import InvalidConfig
from kubeletx.kube.text.duration import parse_duration


class ConfigField:
    """A value of a document. Its methods return the value as a type, or raise InvalidConfig."""

    def __init__(self, document: str, path: str, value: Any) -> None:
        self.document = document
        self.path = path
        self.value = value

    def invalid(self, problem: str, fix: str) -> InvalidConfig:
        return InvalidConfig(obj=self.document, field=self.path, problem=problem, fix=fix)

    def wrong(self, expected: str, fix: str) -> InvalidConfig:
        """Return the error for a value that is not what is expected."""
        found = (
            f"{self.value!r:.60}" if not isinstance(self.value, dict | list) else type(self.value).__name__
        )
        found = {"dict": "a mapping", "list": "a list"}.get(found, found)
        return self.invalid("is missing" if self.value is None else f"{found} is not {expected}", fix)

    def fields(self) -> dict[str, ConfigField]:
        """Return the fields of a mapping."""
        if not isinstance(self.value, dict):
            raise self.wrong("a mapping", "write KEY: VALUE lines")
        prefix = f"{self.path}." if self.path else ""
        return {key: ConfigField(self.document, prefix + key, value) for key, value in self.value.items()}

    def known(self, *keys: str) -> dict[str, ConfigField]:
        """Return the fields of a mapping that has only these keys."""
        fields = self.fields()
        for key, field in fields.items():
            if key not in keys:
                raise field.invalid("is not known", f"write one of {', '.join(keys)}")
        return fields

    def items(self) -> list[ConfigField]:
        """Return the items of a list."""
        if not isinstance(self.value, list):
            raise self.wrong("a list", "write items that begin with '-'")
        return [
            ConfigField(self.document, f"{self.path}[{index}]", value)
            for index, value in enumerate(self.value)
        ]

    def child(self, key: str) -> ConfigField:
        """Return the field of a mapping; its value is None if it is missing."""
        path = f"{self.path}.{key}".lstrip(".")
        return self.fields().get(key) or ConfigField(self.document, path, None)

    def text(self, fix: str) -> str:
        if not isinstance(self.value, str) or not self.value:
            raise self.wrong("a text", fix)
        return self.value

    def flag(self) -> bool:
        if isinstance(self.value, bool):
            return self.value
        raise self.wrong("true or false", "write true or false")

    def seconds(self) -> float:
        """Return the seconds of a duration such as ``5s`` or ``1h30m``."""
        text = "0" if self.value == 0 and self.value is not False else self.value
        if not isinstance(text, str):
            raise self.wrong("a duration", "write it like 5s, 3m or 1h")
        try:
            return parse_duration(text)
        except ValueError as error:
            problem, _, fix = str(error).partition("; ")
            raise self.invalid(f"{text[:60]!r} {problem}", fix or "write a shorter one") from error
