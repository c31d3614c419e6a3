"""ReDeEP's published chunk features under the published procedure, and under an honest one.

    python benchmarks/redeep_published_features.py redeep_llama2_7b_chunks.json.gz

The file holds, per response, its chunks with the scores of 32 heads (``ecs``) and 32 layers (``pks``) and a label.
The published procedure ranks, scales and scores on the same labels; the honest one learns on half of the
responses, measures on the other half, and repeats that.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

import numpy as np

from groundscope.learn.balance import Grid, Ranking, Units, areas, reduce_units

# What the authors released for Llama-2-7B, chunks of RAGTruth.
HEADS, LAYERS, BETA = 3, 4, 0.6
BETAS = tuple(round(0.1 * step, 1) for step in range(1, 20))


def read(path: Path) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[np.ndarray]]:
    """Return per response the (chunk, head) and (chunk, layer) features, and the chunks' labels."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    features, labels = [], []
    for response in json.loads(text)["responses"]:
        chunks = response["chunks"]
        features.append((np.array([c["ecs"] for c in chunks]), np.array([c["pks"] for c in chunks])))
        labels.append(np.array([bool(c["label"]) for c in chunks]))
    return features, labels


def rank(features: list, labels: list) -> Ranking:
    """Rank heads and layers as released: by AUROC, over all chunks."""
    units = Units.joined(features)
    return Ranking.of(units, np.concatenate(labels), np.arange(units.external.shape[1]), "official", "equal")


def scores_of(ranking: Ranking, choice: tuple[int, int, float], features: list) -> np.ndarray:
    """Return the mean of chunk scores per response."""
    units = Units.joined(features)
    return reduce_units(ranking.balance(*choice)(units.external, units.knowledge), units.starts, "mean")


def halves(features: list, labels: list, truth: np.ndarray, splits: int) -> dict[str, np.ndarray]:
    """Return AUROCs on the half that was not learnt from, with the released numbers and with chosen ones."""
    found: dict[str, list[float]] = {"released numbers": [], "numbers chosen too": []}
    counts = tuple(range(1, 33))
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(features))
        learn, test = order[: len(order) // 2], order[len(order) // 2 :]
        ranking = rank([features[i] for i in learn], [labels[i] for i in learn])
        rest = [features[i] for i in test]
        found["released numbers"].append(
            areas(scores_of(ranking, (HEADS, LAYERS, BETA), rest)[:, None], truth[test])[0]
        )
        if seed < splits // 10:  # the grid takes a second each
            units = Units.joined([features[i] for i in learn])
            choice = ranking.choose(Grid(counts, counts, BETAS), units, truth[learn])
            found["numbers chosen too"].append(areas(scores_of(ranking, choice, rest)[:, None], truth[test])[0])
    return {name: np.array(values) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--splits", type=int, default=200, help="random halves; every tenth also chooses numbers")
    arguments = parser.parse_args()
    features, labels = read(arguments.file)
    truth = np.array([chunk_labels.any() for chunk_labels in labels])
    print(f"{len(truth)} responses, {sum(map(len, labels))} chunks, {truth.sum()} hallucinated responses")

    scores = scores_of(rank(features, labels), (HEADS, LAYERS, BETA), features)
    print("published procedure (learnt and measured on the same responses):")
    print(f"  AUROC   {areas(scores[:, None], truth)[0]:.6f}")
    print(f"  Pearson {np.corrcoef(scores, truth)[0, 1]:.6f}")

    print("honest procedure (learnt on half of the responses, measured on the other):")
    for name, values in halves(features, labels, truth, arguments.splits).items():
        if len(values):
            low, high = np.quantile(values, [0.025, 0.975])
            print(
                f"  AUROC   {values.mean():.6f}, standard deviation {values.std():.6f}, "
                f"95 % of {len(values)} splits in [{low:.3f}, {high:.3f}] ({name})"
            )


if __name__ == "__main__":
    main()
