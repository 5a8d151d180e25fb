"""What counts as the same output."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.verifiers.program_output import difference


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("4\n", b"4"), ("4\n", b"4  \n\n"), ("4", b"4\r\n"), ("1 2\n3", b"1  2 \n3\n"), ("0.333333333333", b"0.333333"),
        ("1e-7", b"0"), ("2.50", b"2.5"), ("2.0", b"2"), ("1000000.0", b"1000000.9"), ("-0.0", b"0.0"), ("", b""), ("", b"\n\n"),
        ("안녕", "안녕".encode()), ("yes 1.0000001", b"yes 1.0"), ("nan", b"nan"), ("+1.5e3", b"1500"), ("a\n\nb", b"a\n\nb"),
    ],
)  # fmt: skip
def test_the_same_output(expected, printed):
    assert difference(expected, printed) == ""


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("4\n", b"44"), ("4\n", b"4 4"), ("4", b""), ("", b"4"), ("0.333333333333", b"0.3333"), ("1000000", b"1000001"),
        ("4", b"4.0"), ("1.5", b"nan"), ("1e999", b"1e998"), ("1.5", b"1_5"), ("1.5", b"1.5x"), ("Yes", b"yes"), ("4", b"\n4"),
        ("a\nb", b"a b"), ("a\n\nb", b"a\nb"), ("4", b"\xff\xfe"), ("4", b"4\n5"), ("1.0", "１.0".encode()),
        ("1000000.0", b"1000001.1"), ("9" * 500 + ".0", b"9" * 499 + b"8.0"),
    ],
)  # fmt: skip
def test_another_output(expected, printed):
    assert difference(expected, printed)


@given(st.text(), st.binary())
def test_any_bytes_are_compared_without_raising(expected, printed):
    assert isinstance(difference(expected, printed), str)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_an_output_is_the_same_as_itself(text):
    assert difference(text, text.encode()) == ""


@given(st.floats(0.001, 1e12), st.floats(-1, 1))
def test_decimals_are_the_same_up_to_a_millionth(value, share):
    assert difference(f"{value:.17e}", f"{value * (1 + 0.99e-6 * share):.17e}".encode()) == ""
    assert difference(f"{value + 1:.17e}", f"{(value + 1) * (1 + 2e-6):.17e}".encode())
