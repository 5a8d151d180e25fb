"""Which texts does each check of the verifier ``korean`` accept, and what does it cost?

    python -m benchmarks.korean FOLDER

FOLDER holds ko-chat/chat.jsonl (column a), ko-gsm8k/test.jsonl, ko-mwp/*_train.jsonl and gsm8k/test.jsonl (column question).
The thresholds of the settings were chosen on one half of the rows; the table is about the other half. Prints Markdown.
"""

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tasks.verifiers import korean, morphemes
from tasks.verifiers.text_kinds import KoreanVerifier
from tasks.verifiers.verdict import ScoreItem

CHECKS = ("hangul", "scripts", "speech_level", "spacing")
CONFIGS = {
    **{check: KoreanVerifier(kind="korean", checks=(check,)) for check in CHECKS},
    "all four": KoreanVerifier(kind="korean"),
}
MAX_ROWS = 1000
HAN = ("因此", "答案是", "苹果", "总共", "我们可以", "問題", "計算")
KANA = ("です", "ます", "それは", "リンゴ", "ありがとう", "こたえ")
ENGLISH = ("apple", "total", "therefore", "number", "people", "because", "many", "result", "simple", "really")


def rows(folder: Path, pattern: str, column: str) -> list[str]:
    """The second half of the shuffled rows; the first half chose the thresholds."""
    texts = [
        json.loads(line)[column]
        for file in sorted(folder.glob(pattern))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    random.Random(7).shuffle(texts)
    return texts[len(texts) // 2 :][:MAX_ROWS]


def shuffled(text: str, rng: random.Random) -> str:
    """The characters in another order, the spaces where they were."""
    letters = [each for each in text if not each.isspace()]
    rng.shuffle(letters)
    left = iter(letters)
    return "".join(each if each.isspace() else next(left) for each in text)


def with_words(words: Sequence[str], share: float) -> Callable[[str, random.Random], str]:
    """``text`` with a share of its words, at least one, replaced by some of ``words``."""

    def replaced(text: str, rng: random.Random) -> str:
        found = text.split()
        for place in rng.sample(range(len(found)), max(1, round(share * len(found)))):
            found[place] = rng.choice(words)
        return " ".join(found)

    return replaced


def every_other_plain(text: str, rng: random.Random) -> str:
    """Every other sentence in -습니다 moved to -다 (only the past tense, where nothing else changes)."""
    parts = text.split("었습니다.")
    return "".join(
        part + ("" if i == len(parts) - 1 else "었다." if i % 2 else "었습니다.") for i, part in enumerate(parts)
    )


def without_spaces(text: str, rng: random.Random) -> str:
    return text.replace(" ", "")


def sets(folder: Path) -> dict[str, tuple[list[str], str]]:
    """Name -> (texts, what they are)."""
    rng = random.Random(11)
    chat, gsm = rows(folder, "ko-chat/chat.jsonl", "a"), rows(folder, "ko-gsm8k/test.jsonl", "question")
    mwp, english = rows(folder, "ko-mwp/*_train.jsonl", "question"), rows(folder, "gsm8k/test.jsonl", "question")
    several = [text for text in chat if len(text.split()) >= 3]
    formal = [text for text in gsm if text.count("습니다.") + text.count("니다.") >= 2]
    joined = [f"{text} {one} {other}" for text, one, other in zip(formal, chat[::2], chat[1::2], strict=False)]
    plain = [every_other_plain(text, rng) for text in mwp + gsm if text.count("었습니다.") >= 2]
    return {
        "ko-chat answers": (chat, "natural"),
        "ko-chat answers, six together": ([" ".join(chat[i : i + 6]) for i in range(0, len(chat) - 5, 6)], "natural"),
        "ko-gsm8k questions": (gsm, "natural"),
        "ko-mwp questions": (mwp, "natural"),
        "gsm8k questions (English)": (english, "to refuse"),
        "ko-chat, characters shuffled": ([shuffled(text, rng) for text in several], "to refuse"),
        "ko-gsm8k, characters shuffled": ([shuffled(text, rng) for text in gsm], "to refuse"),
        "ko-chat, spaces removed": ([without_spaces(text, rng) for text in several], "to refuse"),
        "ko-gsm8k, spaces removed": ([without_spaces(text, rng) for text in gsm], "to refuse"),
        "ko-gsm8k, a tenth of the words Chinese": ([with_words(HAN, 0.1)(text, rng) for text in gsm], "to refuse"),
        "ko-gsm8k, a tenth of the words Japanese": ([with_words(KANA, 0.1)(text, rng) for text in gsm], "to refuse"),
        "ko-gsm8k, four in ten words English": ([with_words(ENGLISH, 0.4)(text, rng) for text in gsm], "to refuse"),
        "-습니다 and -아요 joined": (joined, "to refuse"),
        "-었습니다 and -었다 in turn": (plain, "to refuse"),
    }


def accepted(config: KoreanVerifier, texts: Sequence[str]) -> float:
    rewards = [korean.verify(config, ScoreItem("", "", text, {})).reward for text in texts]
    assert None not in rewards, "the extra is missing"
    return statistics.fmean(reward for reward in rewards if reward is not None)


def milliseconds(config: KoreanVerifier, texts: Sequence[str]) -> float:
    """CPU milliseconds a text."""
    begin = time.process_time()
    accepted(config, texts)
    return 1000 * (time.process_time() - begin) / len(texts)


def main() -> None:
    morphemes.load()
    every = sets(Path(sys.argv[1]))
    print("| texts | n | |", " | ".join(CONFIGS), "|\n|", "---|" * (len(CONFIGS) + 3), sep="")
    for name, (texts, what) in every.items():
        shares = " | ".join(f"{accepted(config, texts):.3f}" for config in CONFIGS.values())
        print(f"| {name} | {len(texts)} | {what} | {shares} |", flush=True)
    print("\n| CPU ms a text | characters (mean) |", " | ".join(CONFIGS), "|\n|", "---|" * (len(CONFIGS) + 2), sep="")
    for name in ("ko-chat answers", "ko-gsm8k questions"):
        texts = every[name][0][:300]
        costs = " | ".join(f"{milliseconds(config, texts):.2f}" for config in CONFIGS.values())
        print(f"| {name} | {statistics.fmean(map(len, texts)):.0f} | {costs} |")


if __name__ == "__main__":
    main()
