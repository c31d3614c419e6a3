"""Real tokenizers of every kind that matters here, trained in a moment on a few sentences, without a network."""

import json
from functools import cache

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

BEGIN, END, BOS, UNK = "<|im_start|>", "<|im_end|>", "<s>", "<unk>"

CORPUS = [
    "Answer the question using only the information in the context.",
    "Context: The tower was completed in 1889. Question: When was it completed? Answer: It was completed in 1887.",
    "The quick brown fox jumps over the lazy dog, and the dog does not mind. It never did.",
    "Die Brücke über den Fluß wurde 1932 gebaut; elle coûte très cher. 東京は日本の首都です。",
    "user assistant system You are a helpful assistant. Summarize the information in the context.",
]

CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATML_TRIMMING = CHATML.replace("{{ m['content'] }}", "{{ m['content'] | trim }}")
# Llama-2: the begin token stands in the template, and nothing opens the answer but the end of the user's turn.
INST = (
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ bos_token }}[INST] {{ m['content'] }} [/INST]"
    "{% else %}{{ m['content'] }}{% endif %}{% endfor %}"
)
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + CHATML
)
ENDS_IN_NEWLINE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
SHOUTING = CHATML.replace("{{ m['content'] }}", "{{ m['content'] | upper }}")
TWICE = CHATML.replace("{{ m['content'] }}", "{{ m['content'] }}{{ m['content'] }}")

CHAT_TEMPLATES = {
    "chatml": CHATML,
    "trimming": CHATML_TRIMMING,
    "inst": INST,
    "no_system": NO_SYSTEM,
    "newline": ENDS_IN_NEWLINE,
    "plain": None,
}


@cache
def _byte_level_json(trim_offsets):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim_offsets)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in (BEGIN, END, "<|reserved_0|>")])
    return tokenizer.to_str()


def byte_level(chat_template=CHATML, trim_offsets=False, normalizer=None, kind=PreTrainedTokenizerFast, **options):
    """GPT-2's kind. ``<|reserved_0|>`` is special without a role, as most of Llama 3's special tokens are."""
    backend = Tokenizer.from_str(_byte_level_json(trim_offsets))
    if normalizer is not None:
        backend.normalizer = normalizer
    return kind(tokenizer_object=backend, eos_token=END, chat_template=chat_template, **options)


@cache
def _metaspace_json(model):
    if model == "unigram":
        tokenizer, trainer = Tokenizer(models.Unigram()), trainers.UnigramTrainer
        options = {"unk_token": UNK}
    else:
        tokenizer, trainer = Tokenizer(models.BPE(unk_token=UNK, byte_fallback=True)), trainers.BpeTrainer
        options = {}
    scheme = "always" if model == "unigram" else "first"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=True)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = [UNK, BOS, "</s>"]
    if model != "unigram":
        special += [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(
        CORPUS, trainer(vocab_size=600, special_tokens=special, show_progress=False, **options)
    )
    # The byte tokens are ordinary vocabulary in the models this stands for.
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if not token["content"].startswith("<0x")]
    return json.dumps(data)


def metaspace(model="bpe", chat_template=INST, **options):
    """SentencePiece's kind, with a dummy prefix and a begin token, as Llama 2 (``bpe``) or T5 (``unigram``)."""
    backend = Tokenizer.from_str(_metaspace_json(model))
    backend.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, backend.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=BOS, eos_token="</s>", unk_token=UNK, chat_template=chat_template, **options
    )


@cache
def _word_piece_json():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True, clean_text=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[UNK]", "[SEP]"], show_progress=False)
    )
    return tokenizer.to_str()


def word_piece(chat_template=None):
    """BERT's kind: lower-cases, and drops accents and control characters."""
    backend = Tokenizer.from_str(_word_piece_json())
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="[UNK]", sep_token="[SEP]", chat_template=chat_template
    )


def dropping():
    """Drops whatever it has no token for, without a trace: no unknown token, no bytes."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.train_from_iterator(["abcdefghijklmnopqrstuvwxyz ."], trainers.BpeTrainer(show_progress=False))
    return PreTrainedTokenizerFast(tokenizer_object=backend)


class _CollapsedOffsets(PreTrainedTokenizerFast):
    """Offsets as Llama 3's tokenizer gave them for a year: every token empty (huggingface/tokenizers#1553)."""

    def __call__(self, text, **options):
        encoded = super().__call__(text, **options)
        if "offset_mapping" in encoded:
            encoded["offset_mapping"] = [(start, start) for start, _ in encoded["offset_mapping"]]
        return encoded


class _ShiftedOffsets(PreTrainedTokenizerFast):
    """Offsets that count bytes instead of characters."""

    def __call__(self, text, **options):
        encoded = super().__call__(text, **options)
        if "offset_mapping" in encoded:
            size = np.cumsum([0, *(len(character.encode()) for character in text)])
            encoded["offset_mapping"] = [(int(size[s]), int(size[e])) for s, e in encoded["offset_mapping"]]
        return encoded


def collapsed(chat_template=CHATML):
    return byte_level(chat_template, kind=_CollapsedOffsets)


def byte_offsets(chat_template=CHATML):
    return byte_level(chat_template, kind=_ShiftedOffsets)


def slow_bytes(chat_template=None):
    """A tokenizer in Python, without offsets, one token per byte."""
    return ByT5Tokenizer(chat_template=chat_template)


LOSSLESS = {
    "byte_level": byte_level,
    "byte_level_trimmed": lambda **options: byte_level(trim_offsets=True, **options),
    "byte_level_nfc": lambda **options: byte_level(normalizer=normalizers.NFC(), **options),
    "metaspace_bpe": metaspace,
    "collapsed": collapsed,
    "byte_offsets": byte_offsets,
    "slow_bytes": slow_bytes,
}
ZOO = {**LOSSLESS, "metaspace_unigram": lambda **options: metaspace("unigram", **options), "word_piece": word_piece}
