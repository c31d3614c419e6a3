"""Real models for every test: a tiny random llama that reads text, and the embedded model if it is cached."""

from __future__ import annotations

import os

import hypothesis
import pytest

TINY_CONTEXT = 2048
_CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CORPUS = (
    "The tower was completed in 1889 and stands in Paris. It was built by the engineers of the company.",
    "Answer the question using only the information in the context.\n\nContext:\n\n\nQuestion: When was it finished?",
    "Bees make honey from nectar. The river rises in the mountains and flows into the northern sea.",
    "system user assistant Summarize the information in the context.",
)


@pytest.fixture(scope="session")
def tiny_tokenizer():
    """A byte-level BPE tokenizer with a chat template, trained on four lines."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(_CORPUS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=_CHAT,
    )


def build_tiny_llama(vocabulary: int, context: int = TINY_CONTEXT):
    """A llama of three layers whose attention, norms and biases are anything but uniform."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from reference import families

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = LlamaForCausalLM(config)
        families._randomise(model, torch.Generator().manual_seed(4))
    return model.eval()


@pytest.fixture(scope="session")
def make_tiny(tiny_tokenizer):
    """Make a fresh tiny language model that a test may damage; ``context`` limits what it can read."""
    import groundscope as gs

    def make(context: int = TINY_CONTEXT, name: str = "tiny"):
        return gs.LanguageModel(build_tiny_llama(len(tiny_tokenizer), context), tiny_tokenizer, name=name)

    return make


@pytest.fixture(scope="session")
def tiny(make_tiny):
    """The tiny language model, shared: tests leave it as it is."""
    return make_tiny()


@pytest.fixture(scope="session")
def embedded():
    """The embedded language model, loaded once."""
    from groundscope.lm.catalog import DEFAULT_MODEL
    from groundscope.lm.embedded import embedded_status

    if not embedded_status(DEFAULT_MODEL).cached:
        pytest.skip(f"the embedded model is not in the cache: groundscope models fetch {DEFAULT_MODEL}")
    import groundscope as gs

    return gs.LanguageModel.from_pretrained(DEFAULT_MODEL, dtype="float32", device="cpu")


# The same examples in every run of continuous integration; new ones at every run by hand.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")
