"""`settle_claims`: decides which of several plugins may register the same name.

A name is that of a runtime kind or of another registration. A plugin of this repository wins over all others. Of other
plugins none wins: each that claims the name fails, and its message names the others, so that the order of loading has no
effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from .candidates import FAILED, Candidate


def settle_claims(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates in their order; each that may not register one of its names has failed, with the reason."""
    without_losers = _settle(candidates, _loses_to_own)
    return _settle(without_losers, _is_contested)


def _settle(
    candidates: Sequence[Candidate], judge: Callable[[str, Candidate, Sequence[Candidate]], str]
) -> tuple[Candidate, ...]:
    claims = _claims(candidates)
    return tuple(_judged(one, claims, judge) for one in candidates)


def _judged(
    one: Candidate,
    claims: Mapping[str, Sequence[Candidate]],
    judge: Callable[[str, Candidate, Sequence[Candidate]], str],
) -> Candidate:
    if one.about.state == FAILED:
        return one
    for name in one.names:
        others = [other for other in claims[name] if other is not one]
        if others and (reason := judge(name, one, others)):
            return msgspec.structs.replace(
                one, about=msgspec.structs.replace(one.about, state=FAILED, reason=reason)
            )
    return one


def _claims(candidates: Iterable[Candidate]) -> Mapping[str, Sequence[Candidate]]:
    claims: dict[str, list[Candidate]] = {}
    for one in candidates:
        if one.about.state != FAILED:
            for name in one.names:
                claims.setdefault(name, []).append(one)
    return claims


def _loses_to_own(name: str, one: Candidate, others: Sequence[Candidate]) -> str:
    own = [other for other in others if other.about.identity.is_own]
    if not own or one.about.identity.is_own:
        return ""
    return (
        f"{one.about.identity}: {one.label(name)}: the name is taken by {own[0].label(name)} of "
        f"{own[0].about.identity}, which belongs to kubeletx; choose another name"
    )


def _is_contested(name: str, one: Candidate, others: Sequence[Candidate]) -> str:
    rivals = ", ".join(f"{other.label(name)} of {other.about.identity}" for other in others)
    return (
        f"{one.about.identity}: {one.label(name)}: the name is taken by {rivals} too, so none of them is loaded; "
        "uninstall or disable (--disable-plugin) all but one"
    )
