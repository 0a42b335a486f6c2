"""The Jinja2 templates of the folder ``pages``, with escaping of every value."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from jinja2 import ChainableUndefined, Environment, PackageLoader
from markupsafe import Markup, escape

from kubeletx.kube.text.human import age, human_duration

from .words import mib, visible


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("kubeletx_web", "pages"),
        autoescape=True,
        undefined=ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_plain,
    )
    environment.filters.update(age=_age, until=_until, mib=mib, gib=_gib)
    return environment


def prepare_templates() -> None:
    """Compile all templates, so that the first page does not wait for it."""
    environment = _environment()
    for name in environment.list_templates():
        environment.get_template(name)
    room_macros()


def render(name: str, /, **values: Any) -> str:
    """Return the HTML of the template with this name. A field that is missing shows nothing."""
    return _environment().get_template(f"{name}.html").render(values)


@lru_cache(maxsize=1)
def room_macros() -> Any:
    """Return the macros of ``room.html``."""
    return _environment().get_template("room.html").module


def _plain(value: object) -> object:
    """Return a value of a template; a text has its control characters and changes of direction made visible."""
    return visible(value) if type(value) is str else value


def _age(moment: datetime | str | None) -> Markup:
    """Return the age of a moment as a <time> element, which the page's script keeps up to date. A text is RFC 3339."""
    if not moment:
        return Markup("\u2013")
    try:
        at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        text = age(at, datetime.now(UTC))
    except (ValueError, TypeError):  # it is no time, or one without a zone
        return escape(visible(str(moment)))
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(), text)


def _until(moment: datetime) -> Markup:
    """Return the time until a moment as a <time> element, which the page's script keeps up to date."""
    left = human_duration(max(0.0, (moment - datetime.now(UTC)).total_seconds()))
    return Markup('<time class="until" datetime="{}">{}</time>').format(moment.isoformat(), left)


def _gib(size: float) -> str:
    return f"{size / 1024**3:.1f}"
