"""docs/families.md says what the tests measure; run with GROUNDSCOPE_UPDATE_DOCS=1 to write it anew."""

from __future__ import annotations

import os
from pathlib import Path

import groundscope as gs
from reference import families

PAGE = Path(__file__).parents[2] / "docs" / "families.md"
HEAD = """# Model families

What each family yields, measured by the tests on tiny random models: every signal marked "yes" equals a naive
float64 reference, with padding on either side and in batches of unequal length. A family that is not listed
may work as well: groundscope looks at the model, not at its name. `groundscope doctor --model ID` tells.

| family | attention signals | attention layers | lens signals | output signals | mid residual | norms | logits |
|---|---|---|---|---|---|---|---|
"""
TAIL = """
"Mid residual" is where the residual before the feed-forward block is read: the module whose input it is, or
"parallel" where attention and feed-forward read the same input. "Norms" counts the norms of a layer: one or two
are before attention and feed-forward; more than two means extra norms after them. "Logits" names what the model
does to them after the output matrix.

Families without attention signals compute attention outside transformers' attention interface, or have none;
detectors that need only the output distribution, such as `contrast`, work on them all the same.
"""


def row(name: str) -> str:
    model = families.build(name)
    lm = gs.LanguageModel(model)
    anatomy = lm.anatomy
    kinds = set()
    for mid, layer in zip(anatomy.mids, anatomy.layers, strict=False):
        reader = next((child for child, module in layer.named_children() if module is mid.reader), None)
        kinds.add(f"`{reader}`" if reader else "parallel")
    logits = []
    if anatomy.unembedding is not None:
        if anatomy.unembedding.scale != 1:
            logits.append("scaled")
        if anatomy.unembedding.softcap is not None:
            logits.append("soft-capped")
    support = lm.support()
    attention = f"{len(anatomy.attention_layers)} of {len(anatomy.layers)}"
    cells = [
        name,
        "yes" if support["attention_signals"] else "no",
        attention,
        "yes" if support["lens_signals"] and support["attention_signals"] else "no",
        "yes" if support["output_signals"] else "no",
        ", ".join(sorted(kinds)) if support["attention_signals"] else "",
        str(sum("norm" in type(child).__name__.lower() for child in anatomy.layers[-1].children())),
        ", ".join(logits),
    ]
    return "| " + " | ".join(cells) + " |"


def test_family_table_is_up_to_date():
    page = HEAD + "\n".join(row(name) for name in families.FAMILIES) + "\n" + TAIL
    if os.environ.get("GROUNDSCOPE_UPDATE_DOCS"):
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page
