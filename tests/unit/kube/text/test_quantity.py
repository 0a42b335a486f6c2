from __future__ import annotations

import contextlib
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.kube.text.quantity import (
    MAX,
    NANO,
    Format,
    Quantity,
    add,
    canonical,
    from_bytes,
    parse,
    to_bytes,
    to_millicores,
)

SCALES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0", "0"),
        ("100m", "100m"),
        ("0.1", "100m"),
        ("1.5", "1500m"),
        ("1000m", "1"),
        ("1000k", "1M"),
        (".5", "500m"),
        ("5.", "5"),
        ("+3", "3"),
        ("-1.5", "-1500m"),
        ("0.5Gi", "512Mi"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("1500Ki", "1500Ki"),
        ("0.1Ki", "102400m"),
        ("1e3", "1e3"),
        ("12E6", "12e6"),
        ("1e-3", "1e-3"),
        ("1E", "1E"),
        ("0.5n", "1n"),
        ("9999999E", str(MAX)),
        ("-0", "0"),
    ],
)
def test_quantities_are_written_in_canonical_form(text: str, written: str) -> None:
    assert canonical(text) == written


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "m",
        ".",
        "+",
        "1 Gi",
        "1GB",
        "1K",
        "1gi",
        "1.2.3",
        "--1",
        "e3",
        "1ee3",
        "0x10",
        "\u0661",
        "1\n",
        "9" * 200,
    ],
)
def test_what_is_not_a_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse(text)


@pytest.mark.parametrize("text", ["1e999999999", "-1e999999999", "1e" + "9" * 100])
def test_a_huge_exponent_costs_nothing(text: str) -> None:
    assert abs(parse(text).value) == MAX


@pytest.mark.parametrize("text", ["1e-999999999", "1e-" + "9" * 100])
def test_a_tiny_amount_is_rounded_up(text: str) -> None:
    assert parse(text).nanos == 1


def test_conversions_round_up() -> None:
    assert to_millicores("0.0001") == 1
    assert to_millicores("2") == 2000
    assert to_bytes("1.1") == 2
    assert to_bytes("64Mi") == 64 * 1024 * 1024
    assert parse("-1.5").value == -2


@given(
    st.decimals(min_value=0, max_value=10**9, places=3).map(abs),
    st.sampled_from(sorted(SCALES)),
    st.booleans(),
)
def test_decimal_quantities_are_exact(number: Decimal, suffix: str, negative: bool) -> None:
    sign = "-" if negative else ""
    exact = Fraction(number) * Fraction(10) ** (SCALES[suffix] + 9)
    wanted = min(-(-exact.numerator // exact.denominator), MAX * NANO)
    assert parse(f"{sign}{number:f}{suffix}").nanos == (-wanted if negative else wanted)


@given(st.integers(0, 10**6), st.sampled_from(sorted(BINARY)))
def test_binary_quantities_are_exact(number: int, suffix: str) -> None:
    assert to_bytes(f"{number}{suffix}") == min(number * 1024 ** BINARY[suffix], MAX)


@given(st.integers(-MAX, MAX), st.sampled_from(Format))
def test_the_canonical_form_keeps_the_amount_and_is_stable(nanos: int, form: Format) -> None:
    text = str(Quantity(nanos, form))
    again = parse(text)
    if form is Format.BINARY and abs(nanos) >= 1024 * NANO:
        assert again.value == Quantity(nanos).value
    else:
        assert again.nanos == nanos
    assert str(Quantity(again.nanos, form)) == text


@given(st.integers(0, MAX))
def test_written_sizes_are_read_back(size: int) -> None:
    assert to_bytes(from_bytes(size)) == size
    assert to_millicores(f"{size}m") == size


@given(st.integers(0, 2**60), st.integers(0, 2**60))
def test_sums_are_exact(a: int, b: int) -> None:
    assert add(Quantity(a), Quantity(b)).nanos == a + b


def test_a_sum_is_written_like_its_first_part() -> None:
    assert str(add(parse("1Gi"), parse("0"))) == "1Gi"
    assert str(add(parse("0"), parse("1Gi"))) == "1Gi"


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert parse(text).nanos is not None
