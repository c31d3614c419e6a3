"""Loading by name: what is there loads as it was saved, what is not there or broken is named."""

import json
import shutil
from pathlib import Path

import pytest
import tokenizers_zoo as zoo
import torch
from tiny_wheel import tiny_llama, write_gguf
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel

from groundscope import LanguageModel
from groundscope.errors import GroundscopeError, InputError, PrerequisiteError, UnknownNameError
from groundscope.example import Example
from groundscope.lm.loading.by_name import load


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """A tiny random llama and its tokenizer, saved as a folder."""
    folder = tmp_path_factory.mktemp("saved") / "tiny"
    tokenizer = zoo.byte_level()
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            )
        )  # fmt: skip
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, model.eval(), tokenizer


@pytest.fixture
def folder(saved, tmp_path):
    return Path(shutil.copytree(saved[0], tmp_path / "copy"))


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_a_saved_folder_loads_as_it_was(saved):
    path, model, tokenizer = saved
    lm = LanguageModel.from_pretrained(path, device="cpu")
    assert lm.name == str(path)
    assert not lm.model.training
    assert (lm.dtype, lm.device.type, lm.max_length) == (torch.float32, "cpu", 256)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        torch.testing.assert_close(lm.model(ids).logits, model(ids).logits)
    item = Example(question="When?", passages=("The tower <|im_end|> 🎉.",), response="In 1889.")
    ours, theirs = lm.renderer().layout(item), LanguageModel(model, tokenizer).renderer().layout(item)
    assert ours.prompt_ids.tolist() == theirs.prompt_ids.tolist()
    assert ours.response_ids.tolist() == theirs.response_ids.tolist()


def test_a_folder_may_be_named_from_home(saved, monkeypatch):
    monkeypatch.setenv("HOME", str(saved[0].parent))
    model, tokenizer = load("~/tiny", torch.float32)
    assert model.config.num_hidden_layers == 2
    assert len(tokenizer) == len(saved[2])


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("bfloat16", torch.bfloat16), ("float64", torch.float64), (torch.float16, torch.float16), (None, torch.float32)],
)
def test_dtype(saved, dtype, expected):
    lm = LanguageModel.from_pretrained(saved[0], dtype=dtype, device="cpu")
    assert {weight.dtype for weight in lm.model.parameters()} == {expected}


def test_auto_keeps_the_stored_type(saved, tmp_path):
    saved[1].to(torch.bfloat16).save_pretrained(tmp_path / "half")
    saved[1].to(torch.float32)
    saved[2].save_pretrained(tmp_path / "half")
    assert load(str(tmp_path / "half"), "auto")[0].dtype == torch.bfloat16
    assert LanguageModel.from_pretrained(tmp_path / "half", device="cpu").dtype == torch.float32


def test_a_gguf_file_loads(tmp_path):
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    lm = LanguageModel.from_pretrained(path, device="cpu")
    assert lm.model.config.hidden_size == tiny_llama().config.hidden_size
    assert lm.renderer().layout(Example("Q", ("the the",), "the")).response_length > 0


@pytest.mark.parametrize("name", ["smollm2-135", "smolm2-135m", "smollm2_135m"])
def test_a_misspelt_name_gets_a_suggestion(name):
    with pytest.raises(UnknownNameError, match=r"Did you mean 'smollm2-135m'\?.*hub id.*folder.*gguf"):
        LanguageModel.from_pretrained(name)


@pytest.mark.parametrize("name", ["", " ", "nothing-like-it"])
def test_a_name_like_no_other_lists_the_known_ones(name):
    with pytest.raises(UnknownNameError, match=r"Known: smollm2-135m\."):
        LanguageModel.from_pretrained(name)


@pytest.mark.parametrize(
    "name", ["./nothing", "/nothing", "/no/such/folder", "~/no_such_model", "a/b/c", "../none-such"]
)
def test_a_missing_folder_is_not_looked_for_on_the_hub(name):
    with pytest.raises(InputError, match="does not exist"):
        LanguageModel.from_pretrained(name)


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(InputError, match=r"holds no model: config\.json is missing"):
        LanguageModel.from_pretrained(tmp_path)


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_a_missing_gguf_file(tmp_path, kind):
    path = tmp_path / "m.GGUF"
    if kind == "folder":
        path.mkdir()
    with pytest.raises(InputError, match=r"m\.GGUF does not exist"):
        LanguageModel.from_pretrained(path)


def test_a_gguf_file_that_is_none(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"this is no model")
    with pytest.raises(InputError, match=r"m\.gguf' could not be loaded: .*magic"):
        LanguageModel.from_pretrained(path)


def test_a_hub_id_without_a_network(offline):
    with pytest.raises(PrerequisiteError, match=r"'nobody/nothing' could not be loaded.*name and the network"):
        LanguageModel.from_pretrained("nobody/nothing")


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def remove_tokenizer(folder):
    for path in [*folder.glob("tokenizer*"), *folder.glob("*.jinja")]:
        path.unlink()


def cut_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])


def only_base_model(folder):
    LlamaModel(LlamaConfig.from_pretrained(folder)).save_pretrained(folder)


BROKEN = {
    "no tokenizer": (remove_tokenizer, InputError, "tokenizer"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), PrerequisiteError, "no file named"),
    "cut weights": (cut_weights, InputError, "SafetensorError"),
    "config is no JSON": (lambda folder: (folder / "config.json").write_text("{"), PrerequisiteError, "JSON"),
    "config of wrong type": (lambda folder: edit_config(folder, hidden_size="x"), InputError, "hidden_size"),
    "other shapes": (lambda folder: edit_config(folder, intermediate_size=128), InputError, "could not be loaded"),
    "missing layers": (
        lambda folder: edit_config(folder, num_hidden_layers=3),
        InputError,
        r"is incomplete: 9 weight\(s\) are missing, first 'model\.layers\.2\.",
    ),
    "base model": (only_base_model, InputError, r"is incomplete: 1 weight\(s\) are missing, first 'lm_head\.weight'"),
    "no causal model": (lambda folder: edit_config(folder, model_type="t5"), InputError, "T5Config"),
    "unknown architecture": (
        lambda folder: edit_config(folder, model_type="nosuch", architectures=["NoSuch"]),
        InputError,
        "nosuch",
    ),
    "tokenizer is no tokenizer": (
        lambda folder: (folder / "tokenizer.json").write_text("{}"),
        InputError,
        "KeyError: 'added_tokens'",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_folder_is_named_with_the_reason(folder, case):
    damage, error, message = BROKEN[case]
    damage(folder)
    with pytest.raises(GroundscopeError, match=message) as caught:
        LanguageModel.from_pretrained(folder, device="cpu")
    assert type(caught.value) is error
    assert str(folder) in str(caught.value)
    assert str(caught.value).endswith(".") or str(caught.value).endswith(").")
    assert "\n" not in str(caught.value)


def test_code_of_a_model_does_not_run_unasked(folder):
    marker = folder / "ran"
    code = f"open({str(marker)!r}, 'w').close()\n"
    (folder / "evil.py").write_text(code + "class Config: pass\nclass Model: pass\n")
    edit_config(folder, model_type="evil", auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"})
    with pytest.raises(GroundscopeError, match="could not be loaded"):
        LanguageModel.from_pretrained(folder, device="cpu")
    assert not marker.exists()


@pytest.mark.parametrize("name", ["~nouser_x/y", "~nouser_x/y.gguf", "/" + "x" * 300, "x" * 300, "x" * 300 + ".gguf"])
def test_a_name_that_can_be_no_path_is_refused_as_a_missing_one(name):
    with pytest.raises(InputError, match=r"does not exist|Unknown model"):
        load(name, torch.float32)


def test_the_reason_is_not_cut_within_a_sentence(folder):
    for path in folder.glob("*token*"):
        path.unlink()
    with pytest.raises(GroundscopeError, match="could not be loaded") as caught:
        load(str(folder), torch.float32)
    assert ",." not in str(caught.value) and ":." not in str(caught.value)
    assert "instantiate and convert. Check that" in str(caught.value)
