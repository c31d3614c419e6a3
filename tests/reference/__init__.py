"""Naive float64 references of every signal, and tiny models of many families to compare them on.

Written from the definitions and the models' own code, without a look at the fast path: what both agree on
has been worked out twice.
"""

from reference.cases import Case, random_case
from reference.families import FAMILIES, REFUSED, SUPPORTED, Family, build
from reference.family_table import VOCAB, WINDOW
from reference.oracle import CONTRAST, PER_HEAD, PER_LAYER, PER_TOKEN, SIGNALS, run

__all__ = [
    "CONTRAST",
    "FAMILIES",
    "PER_HEAD",
    "PER_LAYER",
    "PER_TOKEN",
    "REFUSED",
    "SIGNALS",
    "SUPPORTED",
    "VOCAB",
    "WINDOW",
    "Case",
    "Family",
    "build",
    "random_case",
    "run",
]
