"""Combines several configuration errors in one, so that an operator can correct all of them at once."""

from __future__ import annotations

from collections.abc import Sequence

from kubeletx.api import InvalidConfig


class InvalidConfigs(InvalidConfig):
    """Raised for several configuration errors at once; `errors` holds each of them."""

    def __init__(self, errors: Sequence[InvalidConfig]) -> None:
        """`errors`: at least two, in the order found."""
        first = errors[0]
        super().__init__(
            obj=first.obj,
            field=first.field,
            problem=first.problem,
            fix=first.fix,
        )
        self.errors = tuple(errors)
        self.message = f"{len(errors)} problems: " + "; ".join(
            f"({number}) {error.message}" for number, error in enumerate(errors, 1)
        )


def raise_all(errors: Sequence[InvalidConfig]) -> None:
    """Raise the only error, or one `InvalidConfigs` for several; return if `errors` is empty."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise InvalidConfigs(errors)
