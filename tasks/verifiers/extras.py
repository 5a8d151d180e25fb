"""What the verifiers of a recipe need beside the packages that are always there."""

import importlib.util
from collections.abc import Sequence

from tasks.verifiers.kinds import VerifierConfig
from tasks.verifiers.text_kinds import MORPHEME_CHECKS, KoreanVerifier


def check_extras(verifiers: Sequence[VerifierConfig]) -> None:
    """Look before a run what would make every row of a verifier an error; imports nothing.

    Raises:
        ValueError: a package is missing; names the verifier and the cure.
    """
    for verifier in verifiers:
        needs_kiwi = isinstance(verifier, KoreanVerifier) and MORPHEME_CHECKS.intersection(verifier.checks)
        if needs_kiwi and importlib.util.find_spec("kiwipiepy") is None:
            raise ValueError(
                f"verifier {verifier.name!r}: kiwipiepy is missing; install it with pip install -e '.[korean]', "
                "or leave speech_level and spacing out of its checks"
            )
