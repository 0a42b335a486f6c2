"""`settle_claims`: decides which of several plugins may register the same name.

A name is the name of a runtime kind or of another registration. A plugin of this repository wins over all others. Of
other plugins none wins: each that claims the name fails, and its message names the others, so that the order of
loading has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from .candidates import FAILED, Candidate


def settle_claims(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates in their order; each that may not register one of its names has failed, with the reason."""
    without_losers = _settle(candidates, _loses_to_own)
    return _settle(without_losers, _is_contested)


def _settle(
    candidates: Sequence[Candidate], judge: Callable[[str, Candidate, Sequence[Candidate]], str]
) -> tuple[Candidate, ...]:
    """Fail each candidate for one of whose names `judge` returns a reason; it gets the other claimants of the name."""
    claims: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.about.state != FAILED:
            for name in candidate.names:
                claims.setdefault(name, []).append(candidate)

    def judged(candidate: Candidate) -> Candidate:
        if candidate.about.state == FAILED:
            return candidate
        for name in candidate.names:
            others = [other for other in claims[name] if other is not candidate]
            if others and (reason := judge(name, candidate, others)):
                about = msgspec.structs.replace(candidate.about, state=FAILED, reason=reason)
                return msgspec.structs.replace(candidate, about=about)
        return candidate

    return tuple(map(judged, candidates))


def _loses_to_own(name: str, candidate: Candidate, others: Sequence[Candidate]) -> str:
    own = [other for other in others if other.about.identity.is_own]
    if not own or candidate.about.identity.is_own:
        return ""
    return (
        f"{candidate.about.identity}: {candidate.label(name)}: the name is taken by {own[0].label(name)} of "
        f"{own[0].about.identity}, which belongs to kubeletx; choose another name"
    )


def _is_contested(name: str, candidate: Candidate, others: Sequence[Candidate]) -> str:
    rivals = ", ".join(f"{other.label(name)} of {other.about.identity}" for other in others)
    return (
        f"{candidate.about.identity}: {candidate.label(name)}: the name is taken by {rivals} too, so none of them is loaded; "
        "uninstall or disable (--disable-plugin) all but one"
    )
