"""LUMINA's options: kernels, documents, and scales learnt from unlabelled traces."""

from __future__ import annotations

import numpy as np
import pytest

import groundscope as gs
from groundscope.detectors.untrained.lumina import Lumina
from groundscope.errors import InputError, MismatchError, PrerequisiteError
from groundscope.trace.traced import TracedExample
from reference import VOCAB, families, random_case

RATE = "information_processing_rate_calibrated"


def trace_of(rate, shift, name="mmd", **fields) -> gs.Trace:
    arrays = {RATE: np.asarray(rate, dtype=np.float32), name: np.asarray(shift, dtype=np.float32)}
    return gs.Trace(gs.Layout.from_ids([1, 2], range(3, 3 + len(rate))), arrays, **fields)


def some_traces(count=6, seed=0, **fields):
    rng = np.random.default_rng(seed)
    return [trace_of(rng.gamma(2, size=9), rng.uniform(0, 0.3, size=9), **fields) for _ in range(count)]


def test_options_choose_the_signal():
    assert Lumina().signals == (RATE, "mmd")
    assert Lumina(top_k=100).signals == (RATE, "mmd_top100")
    assert Lumina(kernel="rbf", top_k=100, sigma=0.7).signals == (RATE, "mmd_rbf_top100_sigma0.7")
    assert Lumina(documents=4, match_length=True).documents == 4
    assert all(Lumina(top_k=k).uses_contrast for k in (None, 5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "linear"}, r"'kernel' parameter of Lumina must be one of 'cosine', 'rbf'. Got 'linear'"),
        ({"kernel": "rbf"}, "'top_k' parameter of Lumina must be an integer with kernel='rbf'.*no closed form"),
        ({"top_k": 0}, "'top_k' parameter of Lumina must be at least 1. Got 0"),
        ({"top_k": 10.0}, "'top_k' parameter of Lumina must be an integer"),
        ({"kernel": "rbf", "top_k": 9, "sigma": -1}, "'sigma' parameter of Lumina must be a finite number above 0"),
        ({"documents": 0}, "'documents' parameter of Lumina must be at least 1"),
        ({"match_length": "yes"}, "'match_length' parameter of Lumina must be one of True, False"),
        ({"calibration": "minmax"}, "'calibration' parameter of Lumina must be one of 'none', 'zscore', 'rank'"),
    ],
)
def test_options_that_are_none_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Lumina(**options)


def test_the_two_axes_come_apart():
    trace = trace_of([0.25, 1.0], [0.5, 0.125])
    external, internal = Lumina().external_internal(trace)
    np.testing.assert_array_equal(external, [0.5, 0.125])
    np.testing.assert_array_equal(internal, [0.25, 1.0])


@pytest.mark.parametrize("calibration", ["zscore", "rank"])
def test_without_text_a_calibration_does_not_score(calibration):
    with pytest.raises(PrerequisiteError, match=r"calibration='\w+' must see unlabelled text.*calibrate\(traces\)"):
        Lumina(calibration=calibration).token_scores(some_traces()[0])


def test_z_scores_put_both_on_one_scale():
    traces = some_traces()
    mixed = {w: Lumina(weight=w, calibration="zscore").calibrate(traces) for w in (0.0, 0.5, 1.0)}
    tokens = {w: np.concatenate([d.token_scores(trace) for trace in traces]) for w, d in mixed.items()}
    for w, sign in ((0.0, -1), (1.0, 1)):
        assert tokens[w].mean() == pytest.approx(0, abs=1e-9) and tokens[w].std() == pytest.approx(1)
        raw = np.concatenate([trace[RATE if w else "mmd"] for trace in traces])
        np.testing.assert_allclose(tokens[w], sign * (raw - raw.mean()) / raw.std(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(tokens[0.5], (tokens[0.0] + tokens[1.0]) / 2)


@pytest.mark.parametrize("calibration", ["zscore", "rank"])
def test_calibrated_scores_do_not_hang_on_the_signals_scales(calibration):
    traces = some_traces()
    stretched = [trace_of(7 * trace[RATE] + 1, 0.01 * trace["mmd"]) for trace in traces]
    want = [Lumina(calibration=calibration).calibrate(traces).token_scores(trace) for trace in traces]
    got = [Lumina(calibration=calibration).calibrate(stretched).token_scores(trace) for trace in stretched]
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
    raw = [Lumina().token_scores(trace) for trace in stretched]
    assert not np.allclose(raw, want, atol=0.1)


def test_ranks_stay_between_the_weights():
    detector = Lumina(weight=0.3, calibration="rank").calibrate(some_traces())
    far = trace_of([1e6, 0.0], [0.0, 2.0])
    np.testing.assert_allclose(detector.token_scores(far), [0.3, -0.7])


@pytest.mark.parametrize("calibration", ["none", "zscore", "rank"])
def test_fit_reads_no_labels(calibration):
    traces = some_traces()
    unlabelled = [TracedExample(gs.Example("q", ("p",), "r", id=str(i)), trace) for i, trace in enumerate(traces)]
    fitted = Lumina(calibration=calibration).fit(unlabelled)
    want = Lumina(calibration=calibration).calibrate(traces)
    for trace in traces:
        np.testing.assert_array_equal(fitted.token_scores(trace), want.token_scores(trace))
    fitted.check_unseen(unlabelled)


@pytest.mark.parametrize("calibration", ["none", "zscore", "rank"])
def test_saved_and_loaded_it_scores_the_same(calibration, tmp_path):
    traces = some_traces(fingerprint={"model": "tiny", "weights": "abc"}, model="tiny")
    detector = Lumina(weight=0.25, calibration=calibration).calibrate(traces)
    detector.save_pretrained(tmp_path / "detector")
    loaded = Lumina.from_pretrained(tmp_path / "detector")
    assert loaded.get_params() == detector.get_params()
    for trace in traces:
        np.testing.assert_array_equal(loaded.token_scores(trace), detector.token_scores(trace))
    loaded.check_reader({"model": "copy", "weights": "abc"})
    if calibration != "none":
        with pytest.raises(MismatchError, match="weights was 'abc', is 'other'"):
            loaded.check_reader({"model": "tiny", "weights": "other"})


def test_scales_of_another_calibration_are_refused():
    state = Lumina(calibration="rank").calibrate(some_traces()).state()
    with pytest.raises(InputError, match="saved scales are of calibration='rank'"):
        Lumina(calibration="zscore").restore(*state)


def test_what_cannot_be_calibrated_on_is_refused():
    detector = Lumina(calibration="zscore")
    with pytest.raises(InputError, match=r"needs traces to learn its scales from. Got none"):
        detector.calibrate([])
    with pytest.raises(InputError, match=r"calibrate takes traces. Got str"):
        detector.calibrate(["trace"])
    with pytest.raises(InputError, match=r"fit takes traced examples. Got Trace"):
        detector.fit(some_traces())
    mixed = some_traces(2, fingerprint={"model": "a"}) + some_traces(1, fingerprint={"model": "b"})
    with pytest.raises(InputError, match="one model and template"):
        detector.calibrate(mixed)
    with pytest.raises(InputError, match="values that differ"):
        detector.calibrate([trace_of([1.0, 1.0], [0.5, 0.25])])
    with pytest.raises(PrerequisiteError):
        detector.token_scores(some_traces()[0])


def test_several_documents_are_averaged():
    lm = gs.LanguageModel(families.build("llama"), name="tiny-llama")
    rng = np.random.default_rng(3)
    case = random_case(rng, VOCAB, 1)
    prompts = [rng.integers(0, VOCAB, size=length).tolist() for length in (6, 9, 14)]
    detector = Lumina(top_k=5, documents=3)

    def external(*contrasts):
        layout = gs.Layout.from_ids(
            case.prompt_ids, case.response_ids, passages=case.passages, contrast_prompt_ids=list(contrasts)
        )
        return detector.external_internal(lm.trace(layout, detector.signals))[0]

    np.testing.assert_allclose(external(*prompts), np.mean([external(p) for p in prompts], axis=0), rtol=1e-4)


def test_scales_reach_as_far_as_documented(embedded):
    renderer = embedded.renderer()
    example = gs.Example("When was it completed?", ("The tower was completed in 1889.",), "It was completed in 1887.")
    layout = renderer.layout(example, [("Bees make honey from nectar.",)])
    detectors = [Lumina(), Lumina(top_k=100), Lumina(kernel="rbf", top_k=100)]
    trace = embedded.trace(layout, sorted({name for detector in detectors for name in detector.signals}))
    for detector in detectors:
        external, internal = detector.external_internal(trace)
        assert (external >= 0).all() and (external <= 2).all() and external.max() > 0.01
        assert (internal >= 0).all() and (internal <= np.log(embedded.input_embeddings().shape[0])).all()
