"""A tiny sequence-classification model that has learnt one thing: whether the first text holds the word "evidence"."""

from __future__ import annotations

import random
from pathlib import Path

import torch

WORDS = [f"word{number}" for number in range(12)] + [".", "claim", "evidence"]
LIMIT = 40


def tiny_tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "a"]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*special, *WORDS])}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]",
        model_max_length=LIMIT, model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip


def build(labels=("CONTRADICTION", "NEUTRAL", "ENTAILMENT")):
    """Train it, from a seed of its own; a second or two."""
    from transformers import BertConfig, BertForSequenceClassification

    tokenizer = tiny_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=LIMIT + 2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        id2label=dict(enumerate(labels)), num_labels=len(labels), initializer_range=0.3,
    )  # fmt: skip
    rng = random.Random(0)
    fillers = [word for word in WORDS if word.startswith("word")]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertForSequenceClassification(config)
    steps = torch.optim.Adam(model.parameters(), lr=1e-2)
    yes, no = len(labels) - 1, 0
    for _ in range(60):
        firsts = [rng.choices(fillers, k=rng.randint(1, 25)) for _ in range(32)]
        held = [rng.random() < 0.5 for _ in firsts]
        for words, holds in zip(firsts, held, strict=True):
            if holds:
                words[rng.randrange(len(words))] = "evidence"
        seconds = [" ".join(["claim", *rng.choices(fillers, k=rng.randint(1, 6))]) for _ in firsts]
        batch = tokenizer([" ".join(words) for words in firsts], seconds, padding=True, return_tensors="pt")
        loss = model(**batch, labels=torch.tensor([yes if holds else no for holds in held])).loss
        steps.zero_grad()
        loss.backward()
        steps.step()
    assert loss.item() < 0.05
    return model.eval(), tokenizer


def save(folder: Path, **options) -> Path:
    model, tokenizer = build(**options)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
