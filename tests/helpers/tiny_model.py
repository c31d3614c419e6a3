"""A tiny random llama that reads text, and its tokenizer: real parts, small enough for every test."""

from __future__ import annotations

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


def build_tiny_tokenizer():
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


def build_tiny_llama(vocabulary: int, context: int = TINY_CONTEXT, layers: int = 3, heads: int = 4):
    """A llama of three layers whose attention, norms and biases are anything but uniform."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from reference import families

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=heads,
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
