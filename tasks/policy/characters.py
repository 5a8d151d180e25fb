"""The tokenizer of the scratch policy: one character, one token; the four tags are one token each."""

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
CHARACTERS = "0123456789+-*/=,.:;?!() \n"
VOCABULARY = (PAD, BOS, EOS, *TAGS, *CHARACTERS)


def build_tokenizer(max_positions: int = 128) -> PreTrainedTokenizerFast:
    """A 32-entry tokenizer that writes one <bos> before a text and never an <eos>.

    The tags are ordinary added tokens, not special ones: decoding with ``skip_special_tokens`` keeps them, since verifiers
    read them. There is no unknown token: a character outside the vocabulary raises instead of vanishing from the prompt.

    Args:
        max_positions: the model's context in tokens, recorded as ``model_max_length``.
    """
    tokenizer = Tokenizer(WordLevel({token: index for index, token in enumerate(VOCABULARY)}))
    tokenizer.pre_tokenizer = Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in (PAD, BOS, EOS)])
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    tokenizer.post_processor = TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, VOCABULARY.index(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        padding_side="left",
        model_max_length=max_positions,
        clean_up_tokenization_spaces=False,
    )
