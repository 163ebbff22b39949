"""`optgeom train`: JSON, words, files, resuming, exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from helpers import command_line

import optgeom as og

torch = pytest.importorskip("torch")

from helpers.training_cases import blobs  # noqa: E402
from optgeom_cli.train_options import EncoderRunOptions, interruptible  # noqa: E402

from optgeom.errors import IncompatibleError, InvalidInputError  # noqa: E402
from optgeom.training.batches import Augmentation  # noqa: E402
from optgeom.training.checkpoint import read_log  # noqa: E402
from optgeom.training.encoder import train_encoder  # noqa: E402
from optgeom.training.features import ClassMeanTask  # noqa: E402
from optgeom.training.settings import Settings, choose_device  # noqa: E402

FEATURES = ("features", "--counts", "60,30,10", "--temperature", "0.5")
ENCODER = (
    "encoder",
    "--data",
    "blobs.npz",
    "--temperature",
    "0.5",
    "--batch-size",
    "8",
    "--steps",
    "30",
    "--device",
    "cpu",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = blobs()
    np.savez("blobs.npz", X=data.inputs.numpy(), y=data.labels())
    return tmp_path


run = partial(command_line.run, "train")
refused = partial(command_line.refused, "train")


def trained(*arguments):
    done = run(*arguments, "--json")
    assert done.stderr == ""
    return command_line.parsed(done)


def test_exact_features(folder):
    answer = trained(*FEATURES, "--exact", "--out", "run")
    assert answer["geometry"]["max_angle_error_deg"] < 0.05 and answer["geometry"]["class_r2"] > 0.99999
    assert answer["losses"]["optimal"] == pytest.approx(answer["losses"]["population"], abs=1e-12)
    assert answer["loss"]["batch_size"] == "inf"
    assert set(answer["files"]) == {"means", "geometry", "result"}
    with np.load("run/means.npz") as arrays:
        np.testing.assert_allclose(arrays["means"] @ arrays["means"].T, answer["gram"], atol=1e-12)
    assert json.loads((folder / "run/result.json").read_text()) == answer
    assert og.Geometry.load("run/geometry.npz").risk == answer["losses"]["optimal"]


def test_sampled_features_and_words(folder):
    pytest.importorskip("matplotlib")
    answer = trained(
        *FEATURES, "--steps", "400", "--log-every", "100", "--out", "run", "--plot", "run.svg", "--batch-size", "32"
    )
    assert answer["geometry"]["max_angle_error_deg"] < 10 and answer["steps"] == 400
    assert [record["step"] for record in read_log(folder / "run/log.jsonl")] == [100, 200, 300, 400]
    assert "<svg" in (folder / "run.svg").read_text()
    done = run(*FEATURES, "--steps", "50")
    words = " ".join(done.stdout.split())
    assert (
        "Trained free class means, 3 classes" in words
        and "batches of 256 images" in words
        and "Population loss" in words
    )


def test_infonce_features():
    answer = trained(*FEATURES, "--loss", "infonce", "--negatives", "2", "--anchors", "64", "--steps", "20")
    assert answer["loss"]["name"] == "infonce"


def test_encoder(folder):
    pytest.importorskip("matplotlib")
    answer = trained(*ENCODER, "--out", "run", "--plot", "run.png", "--holdout", "0.2", "--arch", "cnn", "--dim", "4")
    assert answer["counts"] == [24, 16, 8] and answer["names"] == ["0", "1", "2"]
    assert set(answer["files"]) == {"log", "checkpoint", "encoder", "embeddings", "plot", "geometry", "result"}
    assert all((folder / path).is_file() for path in answer["files"].values())
    assert answer["validation"]["verdict"] in {"consistent", "differs", "inconclusive", "collapsed"}
    assert (
        answer["held_out"]["max_angle_error_deg"] is not None
        and answer["from_simplex"]["max_angle_error_deg"] is not None
    )
    with np.load("run/embeddings.npz") as arrays:
        assert arrays["embeddings"].shape == (48, 4)
    again = command_line.answer("validate", "--embeddings", "run/embeddings.npz", "--geometry", "run/geometry.npz")
    assert again["max_angle_error_deg"] == pytest.approx(answer["validation"]["max_angle_error_deg"])


def test_encoder_subset_and_sampler(folder):
    answer = trained(*ENCODER, "--counts", "20,10,4", "--sampler", "balanced", "--noise", "0.2", "--shift", "0")
    assert answer["counts"] == [20, 10, 4]
    np.testing.assert_allclose(answer["proportions"], 1 / 3)
    done = run(*ENCODER)
    words = " ".join(done.stdout.split())
    assert "Trained encoder on 60 samples of blobs.npz, 3 classes" in words and "From the simplex" in words


def test_held_out_pairs_that_are_not_measured_are_named(folder):
    arguments = (*ENCODER, "--holdout", "0.1")  # 3, 2 and 1 held-out images of 30, 20 and 10
    answer = trained(*arguments)
    assert (
        answer["held_out"]["num_pairs"],
        answer["held_out"]["all_pairs"],
        answer["held_out"]["without_direction"],
    ) == (
        1,
        3,
        ["2"],
    )
    assert (answer["geometry"]["num_pairs"], answer["geometry"]["without_direction"]) == (3, [])
    done = run(*arguments)
    words = command_line.plain(done.stdout)
    assert re.search(r"Max angle error \S+ degrees over 3 pairs,", words) and re.search(
        r"Held out \S+ degrees over 1 of 3 pairs", words
    )
    assert "without class 2, too few samples to measure a direction" in words
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_class_r2_of_nearly_equal_cosines_is_left_out(folder):
    answer = trained(*ENCODER, "--counts", "10,10,9")
    assert answer["geometry"]["class_r2"] < -1 and answer["geometry"]["class_r2_weak"]
    assert "class r2 n/a (the optimal cosines hardly differ)" in command_line.plain(
        run(*ENCODER, "--counts", "10,10,9").stdout
    )
    assert "class r2 1.0000" in command_line.plain(run(*FEATURES, "--exact").stdout)


def test_resume(folder):
    short = (*ENCODER, "--checkpoint-every", "10", "--log-every", "10")
    whole = trained(*short, "--out", "whole")
    again = trained(*short, "--out", "whole", "--resume")
    assert again["geometry"] == whole["geometry"] and again["losses"] == whole["losses"]
    assert "holds a run already (resume it with --resume" in refused(3, *short, "--out", "whole")
    remedy = "(the learning rate follows their number; give 30, or start anew in another folder)"
    assert f"`steps` must be as in the run to resume, 30; got 31 {remedy}" in refused(
        3, *short, "--out", "whole", "--resume", "--steps", "31"
    )


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        (2, (*FEATURES, "--resume"), "--resume goes with --out DIR"),
        (2, (*FEATURES, "--exact", "--resume", "--out", "new"), "--resume and --exact exclude each other"),
        (
            2,
            (*FEATURES, "--exact", "--steps", "15000", "--optimizer", "sgd"),
            "--steps, --optimizer and --exact exclude each other",
        ),
        (2, (*FEATURES, "--anchors", "64"), "--anchors goes with --loss infonce"),
        (2, (*FEATURES, "--threads", "9999999"), "--threads must be at most 1024; got 9999999"),
        (3, (*FEATURES, "--seed", "9" * 20), "`seed` must be at most 2^63 - 1"),
        (3, (*FEATURES, "--exact", "--seed", "9" * 20), "`seed` must be at most 2^63 - 1"),
        (3, (*ENCODER, "--seed", "-1"), "`seed` must be a whole number >= 0; got -1"),
        (3, (*FEATURES, "--exact", "--dim", "10000000"), "`dim` must be at most 65536; got 10000000"),
        (3, (*ENCODER, "--dim", "10000000"), "`dim` must be at most 65536; got 10000000"),
        (3, (*ENCODER, "--rows", "9" * 20), "`batch` must be at most 100000"),
        (3, (*ENCODER, "--accumulate", "9" * 20), "`accumulate` must be at most 1000000"),
        (3, (*ENCODER, "--learning-rate", "1e300"), "`learning_rate` must be at most 1e+35; got 1e+300"),
        (3, (*ENCODER, "--shift", "9999"), "`shift` must be at most"),
        (3, (*ENCODER, "--noise", "1e300"), "`noise` must be at most 1e+30; got 1e+300"),
        (3, (*ENCODER, "--views", "9" * 20), "`batch` must be at most 100000"),
        (3, (*ENCODER, "--device", "cuda:x"), "`device` must be one of auto, cpu, cuda; got 'cuda:x'"),
        (2, (*FEATURES, "--plot", "run.bmp"), "--plot must end in .png, .svg, .pdf; got 'run.bmp'"),
        (3, (*FEATURES, "--plot", "none/run.png"), "cannot write none/run.png: the folder none does not exist"),
        (3, (*FEATURES, "--out", "none/run"), "cannot make none/run: the folder none does not exist"),
        (3, (*FEATURES, "--out", "blobs.npz"), "cannot write into blobs.npz: it is a file"),
        (3, (*FEATURES, "--steps", "0"), "`steps` must be a whole number >= 1; got 0"),
        (3, (*FEATURES, "--threads", "0"), "`threads` must be a whole number >= 1; got 0"),
        (2, (*FEATURES, "--loss", "supcon-full"), "`loss` must be SupCon with a finite batch size or InfoNCE"),
        (2, ("features",), "give exactly one of --counts"),
        (2, (*ENCODER, "--labels", "blobs.npz"), "--labels is not a source of classes here"),
        (2, (*ENCODER, "--arch", "vit"), "Invalid value for '--arch'"),
        (3, (*ENCODER, "--data", "imagenet"), "`data` must be digits, cifar10, cifar100, mnist or a .npz file"),
        (3, (*ENCODER, "--counts", "99,9,9"), "`counts` must be at most what blobs.npz has; got 99 for class 0 of 30"),
        (3, (*ENCODER, "--holdout", "1"), "`holdout` must be in [0, 1); got 1.0"),
        (3, (*ENCODER, "--device", "tpu"), "`device` must be one of auto, cpu, cuda; got 'tpu'"),
        (
            5,
            (*ENCODER, "--learning-rate", "1e30", "--optimizer", "sgd"),
            "the weights diverged (lower the learning rate",
        ),
    ],
)
def test_refusals(folder, code, arguments, message):
    assert message in refused(code, *arguments)


def test_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for command in (FEATURES, ("encoder",)):
        assert refused(6, *command) == "training needs torch: pip install 'optgeom[torch]'"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_stopped_by_a_signal(folder, monkeypatch, number, code):
    terms, seen = ClassMeanTask.terms, []

    def stop_at_the_fifth(task):
        seen.append(None)
        if len(seen) == 5:
            os.kill(os.getpid(), number)
        return terms(task)

    monkeypatch.setattr(ClassMeanTask, "terms", stop_at_the_fifth)
    message = refused(code, *FEATURES, "--steps", "20", "--out", "run")
    assert message.startswith(f"stopped by {number.name} after step 5: saved in run") and "--resume" in message
    assert trained(*FEATURES, "--steps", "20", "--out", "run", "--resume")["steps"] == 20
    assert len(seen) == 20


def test_help():
    done = run("--help")
    assert done.exit_code == 0 and "features" in done.stdout and "encoder" in done.stdout
    assert "--checkpoint-every" in run("encoder", "--help").stdout


def test_what_does_not_fit_into_memory(monkeypatch):
    def too_large(*arguments, **options):
        torch.empty(2**50)

    monkeypatch.setattr("optgeom.training.encoder.train_encoder", too_large)
    message = refused(5, "encoder", "--data", "digits")
    assert "not enough memory for such batches" in message


def test_an_error_of_torch_that_is_not_about_memory():
    with pytest.raises(RuntimeError, match="another"), interruptible():
        raise RuntimeError("another")


@pytest.mark.parametrize("name", ["cuda:2", "cuda:99999999999999999999"])
def test_a_device_beyond_those_there(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(InvalidInputError, match="`device` must be below cuda:2; got 'cuda:"):
        choose_device(name)
    assert choose_device("cuda:1") == torch.device("cuda:1")


def test_a_shift_of_vectors():
    with pytest.raises(InvalidInputError, match="`shift` must be 0 for samples without pixels; got 1"):
        Augmentation(shift=1).check((5,))


def test_a_full_batch_of_another_size():
    with pytest.raises(IncompatibleError, match="`batch` must be all 60 samples for a full batch; got 8"):
        train_encoder(blobs(), og.SupConFullBatch(0.5), batch=8)


def test_options_of_the_run_reach_its_settings():
    changed = {
        "steps": 7,
        "learning_rate": 0.2,
        "optimizer": "sgd",
        "average_from": 0.3,
        "accumulate": 3,
        "device": "cpu",
        "seed": 4,
        "log_every": 5,
        "checkpoint_every": 6,
        "amp": "bf16",
    }
    chosen = EncoderRunOptions(**changed).settings()
    assert {name: getattr(chosen, name) for name in changed} == changed
    assert EncoderRunOptions().settings() == Settings(learning_rate=1e-3)


def test_a_run_of_0_1_0_is_resumed(tmp_path):
    # Its checkpoint, of step 13 of 40, was written by version 0.1.0 (commit 1575dda) with these options.
    options = (*FEATURES, "--loss", "infonce", "--negatives", "2", "--anchors", "32")
    options += ("--steps", "40", "--average-from", "0.2", "--log-every", "10")
    shutil.copytree(Path(__file__).parents[1] / "data" / "files-0.1.0" / "run", tmp_path / "run")
    resumed = trained(*options, "--out", str(tmp_path / "run"), "--resume")
    whole = trained(*options)
    assert [record["step"] for record in read_log(tmp_path / "run" / "log.jsonl")] == [10, 20, 30, 40]
    np.testing.assert_allclose(resumed["gram"], whole["gram"], rtol=0, atol=1e-12)
    assert resumed["losses"]["final"] == pytest.approx(whole["losses"]["final"], rel=1e-12)
