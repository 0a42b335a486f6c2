"""The Jinja2 templates of the folder ``pages``, with escaping of every value."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kubeletx.kube.text.human import age, human_duration

from .words import mib, tone, visible


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("kubeletx_web", "pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_plain,
    )
    environment.filters.update(age=_age, until=_until, mib=mib, tone=tone)
    return environment


def prepare_templates() -> None:
    """Compile all templates, so that the first page does not wait for it."""
    environment = _environment()
    for name in environment.list_templates():
        environment.get_template(name)


def render(name: str, /, **values: Any) -> str:
    """Return the HTML of the template with this name. A value that is missing raises jinja2.UndefinedError."""
    return _environment().get_template(f"{name}.html").render(values)


def _plain(value: object) -> object:
    """Return a value of a template; a text has its control characters and changes of direction made visible."""
    return visible(value) if type(value) is str else value


def _age(moment: datetime | None) -> Markup:
    """Return the age of a moment as a <time> element, which the page's script keeps up to date."""
    if moment is None:
        return Markup("\u2013")
    now = datetime.now(UTC)
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(), age(moment, now))


def _until(moment: datetime) -> Markup:
    """Return the time until a moment as a <time> element, which the page's script keeps up to date."""
    left = human_duration(max(0.0, (moment - datetime.now(UTC)).total_seconds()))
    return Markup('<time class="until" datetime="{}">{}</time>').format(moment.isoformat(), left)
