"""The loop: resuming, stopping, averaging, accumulation, what happens to a NaN, and what a GPU waits for."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import optgeom as og

torch = pytest.importorskip("torch")

from helpers.training_cases import LONG, blobs, encoder_task, settings  # noqa: E402

from optgeom import progress  # noqa: E402
from optgeom.training import checkpoint  # noqa: E402
from optgeom.training.checkpoint import TrainingLog, read_log  # noqa: E402
from optgeom.training.class_batches import SupConBatches  # noqa: E402
from optgeom.training.features import ClassMeanTask, train_features  # noqa: E402
from optgeom.training.loop import Loop, describe_progress  # noqa: E402
from optgeom.training.settings import Settings  # noqa: E402
from optgeom.training.stops import DivergedError, TrainingInterruptedError, explain_divergence  # noqa: E402
from optgeom.training.task import GramDistance, Terms  # noqa: E402

HELPERS = Path(__file__).parents[1] / "helpers"
CLASSES = og.ClassDistribution.from_counts([60, 30, 10])
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def means_task(loss=None, seed=0):
    chosen = og.SupCon(0.5, 8, 1, "skip") if loss is None else loss
    return ClassMeanTask(CLASSES, chosen, geometry=og.solve(CLASSES, chosen), dim=3, anchors=32, seed=seed)


def same(first, second):
    assert first.keys() == second.keys()
    for name in first:
        if isinstance(first[name], torch.Tensor):
            assert torch.equal(first[name], second[name]), name


class KilledError(Exception):
    pass


def killer(at):
    def after(step):
        if step == at:
            raise KilledError

    return after


@pytest.mark.parametrize("at", [3, 5, 17, 36])
@pytest.mark.parametrize("kind", ["infonce", "shuffled", "means"])
def test_resumed_run_is_the_same_run(tmp_path, kind, at):
    def task():
        if kind == "means":
            return means_task()
        return encoder_task(None if kind == "infonce" else og.SupCon(0.5, 8, 2), shuffled=kind == "shuffled")

    whole, parts = task(), task()
    expected = Loop(whole, settings(), folder=tmp_path / "whole").run()
    with pytest.raises(KilledError):
        Loop(parts, settings(), folder=tmp_path / "parts", after_step=killer(at)).run()
    # Whoever draws numbers between the two must not matter.
    torch.manual_seed(99), np.random.seed(99), random.seed(99)  # noqa: NPY002
    again = task()
    result = Loop(again, settings(), folder=tmp_path / "parts").run(resume=True)
    same(whole.module.state_dict(), again.module.state_dict())
    assert result.records == expected.records and result.distance == expected.distance
    assert (tmp_path / "parts" / "log.jsonl").read_text() == (tmp_path / "whole" / "log.jsonl").read_text()
    assert [record["step"] for record in read_log(tmp_path / "parts" / "log.jsonl")] == [7, 14, 21, 28, 35, 40]
    # A finished run can be resumed too, and does nothing.
    once_more = task()
    assert Loop(once_more, settings(), folder=tmp_path / "parts").run(resume=True).distance == expected.distance
    same(whole.module.state_dict(), once_more.module.state_dict())


def start(folder, resume):
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    return subprocess.Popen(
        [sys.executable, str(HELPERS / "training_cases.py"), str(folder), resume],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_killed_process_resumes_bit_for_bit(tmp_path):
    whole = encoder_task()
    expected = Loop(whole, settings(steps=LONG), folder=tmp_path / "whole").run()
    with start(tmp_path / "killed", "new") as killed:
        for line in killed.stdout:
            if int(line) == 53:
                killed.kill()  # SIGKILL: nothing can be saved any more
                break
    assert killed.returncode == -signal.SIGKILL
    with start(tmp_path / "killed", "resume") as resumed:
        steps = resumed.communicate()[0].split()
    assert resumed.returncode == 0 and 50 < int(steps[0]) <= LONG
    final = torch.load(tmp_path / "killed" / "final.pt", weights_only=True)
    same(whole.module.state_dict(), final["module"])
    assert expected.records == final["records"]
    assert (tmp_path / "whole" / "log.jsonl").read_text() == (tmp_path / "killed" / "log.jsonl").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_save_and_say_how_to_resume(tmp_path, number):
    whole = means_task()
    Loop(whole, settings()).run()

    def after(step):
        if step == 11:
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    with pytest.raises(
        TrainingInterruptedError, match=rf"stopped by {number.name} after step 11: saved in .*checkpoint.pt; .*--resume"
    ) as caught:
        Loop(means_task(), settings(), folder=tmp_path, after_step=after).run()
    assert (caught.value.step, caught.value.signal, caught.value.checkpoint) == (11, number, tmp_path / "checkpoint.pt")
    assert signal.getsignal(number) is before
    again = means_task()
    Loop(again, settings(), folder=tmp_path).run(resume=True)
    same(whole.module.state_dict(), again.module.state_dict())
    with pytest.raises(TrainingInterruptedError, match="nothing was saved"):
        Loop(means_task(), settings(), after_step=after).run()


def test_second_interrupt_ends_at_once(tmp_path):
    def after(step):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        Loop(means_task(), settings(), folder=tmp_path, after_step=after).run()


class Poisoned(ClassMeanTask):
    """Something is NaN in one batch."""

    at = 37
    where = "loss"
    seen = 0

    def terms(self):
        terms = super().terms()
        self.seen += 1
        nan = float("nan") if self.seen == self.at else 0.0
        inputs = terms.inputs + (nan if self.where == "inputs" else 0.0)
        features = terms.features + (nan if self.where != "loss" else 0.0)
        return Terms(total=terms.total + nan, count=terms.count, inputs=inputs, features=features)


@pytest.mark.parametrize(
    ("where", "cause"),
    [
        ("inputs", "the inputs of its batch hold NaN"),
        ("features", ".*the weights diverged .*0.00"),
        ("loss", ".*the loss itself overflowed"),
    ],
)
def test_nan_names_the_first_step_the_cause_and_the_last_good_checkpoint(tmp_path, where, cause):
    loss = og.SupCon(0.5, 8, 2)
    task = Poisoned(CLASSES, loss, geometry=og.solve(CLASSES, loss), dim=3, anchors=32, seed=0)
    task.where = where
    chosen = settings(accumulate=1, log_every=40, checkpoint_every=10)
    with pytest.raises(
        DivergedError, match=rf"must stay finite; got nan at step 37: {cause}.*last good checkpoint is .*checkpoint.pt"
    ) as caught:
        Loop(task, chosen, folder=tmp_path).run()
    assert caught.value.step == 37 and caught.value.checkpoint == tmp_path / "checkpoint.pt"
    assert isinstance(caught.value, og.SolverError)
    kept = torch.load(caught.value.checkpoint, weights_only=True)
    assert kept["step"] == 30 and torch.isfinite(kept["module"]["rows"]).all()
    with pytest.raises(DivergedError, match="no checkpoint was kept"):
        fresh = Poisoned(CLASSES, loss, geometry=og.solve(CLASSES, loss), dim=3, anchors=32, seed=0)
        Loop(fresh, chosen).run()


def test_real_divergence_and_bad_data():
    with pytest.raises(DivergedError, match=r"the weights diverged .lower the learning rate") as caught:
        Loop(encoder_task(arch="mlp"), settings(learning_rate=1e30, optimizer="sgd")).run()
    assert caught.value.step > 1
    task = encoder_task()
    task.data.inputs[:] = math.nan
    with pytest.raises(DivergedError, match="at step 1: the inputs of its batch hold NaN or infinity"):
        Loop(task, settings()).run()
    assert "before any update" in explain_divergence(0.0, math.nan, 1, 0.1)


def test_accumulated_gradient_is_that_of_the_mean_over_all_anchors():
    # Batches whose numbers of valid anchors differ: the mean of their means would be another number.
    loss = og.SupCon(0.5, 8, 1, "skip")
    batches = SupConBatches(CLASSES, loss)
    start = means_task(loss).module.rows.detach().clone()
    generator = torch.Generator().manual_seed(1)
    leaf = start.clone().requires_grad_(True)
    unit = torch.nn.functional.normalize(leaf, dim=1)
    parts = [batches(unit @ unit.T, batches.draw(generator)) for _ in range(4)]
    assert len({count.item() for _, count in parts}) > 1
    mean = sum(total for total, _ in parts) / sum(count for _, count in parts)
    mean.backward()
    task = means_task(loss)
    chosen = settings(steps=1, accumulate=4, optimizer="sgd", momentum=0.0, learning_rate=0.1, average_from=1.0)
    result = Loop(task, chosen).run()
    assert result.loss == pytest.approx(mean.item(), rel=1e-14)
    torch.testing.assert_close(task.module.rows.detach(), start - 0.1 * leaf.grad, rtol=1e-13, atol=1e-15)


def test_average_and_schedule():
    task = means_task()
    seen = []
    loop = Loop(
        task,
        settings(steps=10, average_from=0.5),
        after_step=lambda step: seen.append(task.module.rows.detach().clone()),
    )
    result = loop.run()
    assert result.averaged == 5
    torch.testing.assert_close(task.module.rows.detach(), torch.stack(seen[5:]).mean(dim=0), rtol=1e-14, atol=1e-15)
    task = means_task()
    assert Loop(task, settings(average_from=1.0)).run().averaged == 0
    chosen = Settings(steps=10, learning_rate=1.0, warmup=2)
    assert [round(chosen.rate(step), 6) for step in (0, 1, 2, 6)] == [0.5, 1.0, 1.0, 0.5]
    assert chosen.rate(9) < 0.05


def test_averaged_weights_get_the_batch_statistics_of_fifty_fresh_batches(monkeypatch):
    task = encoder_task()
    norm = next(layer for layer in task.module.modules() if isinstance(layer, torch.nn.BatchNorm2d))
    draw, batches = task.draw, []
    monkeypatch.setattr(task, "draw", lambda: batches.append(draw()) or batches[-1])
    seen = []
    norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    task.refresh()
    assert len(batches) == len(seen) == 50 and norm.momentum == 0.1
    mean = torch.stack([inputs.mean(dim=(0, 2, 3)) for inputs in seen]).mean(dim=0)
    variance = torch.stack([inputs.transpose(0, 1).flatten(1).var(dim=1) for inputs in seen]).mean(dim=0)
    torch.testing.assert_close(norm.running_mean, mean, atol=1e-5, rtol=0)
    torch.testing.assert_close(norm.running_var, variance, atol=0, rtol=1e-5)


def test_optimizers_and_clipping():
    for changed in ({"optimizer": "sgd"}, {"clip_norm": 1e-3}, {"amp": "bf16"}, {"weight_decay": 0.1}):
        assert math.isfinite(Loop(encoder_task(), settings(steps=5, **changed)).run().loss)


def test_random_numbers_of_the_caller_are_left_alone():
    torch.manual_seed(5), np.random.seed(5), random.seed(5)  # noqa: NPY002
    expected = torch.rand(3), np.random.rand(3), random.random()  # noqa: NPY002
    torch.manual_seed(5), np.random.seed(5), random.seed(5)  # noqa: NPY002
    Loop(encoder_task(), settings(steps=3)).run()
    assert torch.equal(torch.rand(3), expected[0])
    assert np.array_equal(np.random.rand(3), expected[1]) and random.random() == expected[2]  # noqa: NPY002


def test_folders_and_foreign_checkpoints(tmp_path):
    Loop(means_task(), settings(), folder=tmp_path).run()
    with pytest.raises(og.InvalidInputError, match=r"holds a run already .resume it with --resume"):
        Loop(means_task(), settings(), folder=tmp_path).run()
    with pytest.raises(og.InvalidInputError, match=r"`learning_rate` must be as in the run to resume, 0.01; got 0.5"):
        Loop(means_task(), settings(learning_rate=0.5), folder=tmp_path).run(resume=True)
    with pytest.raises(og.InvalidInputError, match=r"`temperature` must be as in the run to resume, 0.5; got 0.4"):
        Loop(means_task(og.SupCon(0.4, 8, 1, "skip")), settings(), folder=tmp_path).run(resume=True)
    with pytest.raises(og.InvalidInputError, match="`folder` must be given to resume"):
        Loop(means_task(), settings()).run(resume=True)
    for content in (b"nonsense", None):
        path = tmp_path / "checkpoint.pt"
        if content is None:
            torch.save({"model": 1}, path)
        else:
            path.write_bytes(content)
        with pytest.raises(og.InvalidInputError, match=r"checkpoint.pt must be a checkpoint of optgeom"):
            Loop(means_task(), settings(), folder=tmp_path).run(resume=True)
    with pytest.raises(og.InvalidInputError, match="cannot read"):
        checkpoint.load(tmp_path / "missing.pt", {}, torch.device("cpu"))


def test_resume_before_the_first_checkpoint_starts_anew(tmp_path):
    with pytest.raises(KilledError):
        Loop(means_task(), settings(log_every=2), folder=tmp_path, after_step=killer(4)).run()
    assert len(read_log(tmp_path / "log.jsonl")) == 1
    result = Loop(means_task(), settings(log_every=2), folder=tmp_path).run(resume=True)
    assert result.records == Loop(means_task(), settings(log_every=2)).run().records
    assert read_log(tmp_path / "log.jsonl") == result.records


def test_log_drops_what_is_done_again(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"step": step}) + "\n" for step in (5, 10, 15)) + '{"step": 2')
    log = TrainingLog(path, 10)
    log.write({"step": 12})
    assert [record["step"] for record in read_log(path)] == [5, 10, 12] == [record["step"] for record in log.records]
    assert TrainingLog(path, 0).records == [] and path.read_text() == ""
    assert read_log(path) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"steps": 0}, "`steps` must be a whole number >= 1"),
        ({"learning_rate": 0.0}, "`learning_rate` must be > 0"),
        ({"optimizer": "lion"}, "`optimizer` must be one of adam, sgd"),
        ({"amp": "fp8"}, "`amp` must be one of off, bf16, fp16"),
        ({"average_from": 1.5}, "`average_from` must be at most 1; got 1.5"),
        ({"momentum": 1.0}, "`momentum` must be below 1; got 1.0"),
        ({"warmup": 40}, "`warmup` must be below `steps` = 40; got 40"),
        ({"clip_norm": 0.0}, "`clip_norm` must be > 0"),
    ],
)
def test_settings_outside_their_domain(changed, message):
    with pytest.raises(og.InvalidInputError, match=message):
        settings(**changed)


def test_devices():
    with pytest.raises(og.InvalidInputError, match="`device` must be one of auto, cpu, cuda; got 'tpu'"):
        Loop(means_task(), settings(device="tpu"))
    with pytest.raises(og.InvalidInputError, match="`amp` must be bf16 or off on a CPU"):
        Loop(means_task(), settings(amp="fp16"))
    if not torch.cuda.is_available():
        with pytest.raises(og.InvalidInputError, match="torch finds no CUDA device"):
            Loop(means_task(), settings(device="cuda"))
        assert Loop(means_task(), settings(device="auto")).device.type == "cpu"


def test_silent_without_a_terminal_and_informative_with_one(capsys, monkeypatch):
    Loop(means_task(), settings(), progress=True).run()
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err == ""
    distance = GramDistance(max_angle_error_deg=2.0, class_r2=0.9, relative_frobenius=0.1, angles_deg=None)
    words = describe_progress(1.25, 1.0, distance)
    assert words == "loss 1.25 (optimum 1), angles within 2 deg, Gram 0.1"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", -1.0)
    with progress.progress_bar("training", total=10) as show:
        show(5, words=words)
        show(6)
    assert "training" in (shown := capsys.readouterr().err) and "6/10" in shown and "loss 1.25" in shown


@needs_cuda
@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["means", "means infonce", "supcon", "infonce", "balanced"])
@pytest.mark.parametrize("amp", ["off", "bf16", "fp16"])
def test_nothing_waits_for_the_device_between_logs(kind, amp):
    made = {
        "means": lambda: means_task(),
        "means infonce": lambda: means_task(og.InfoNCE(0.5, 3, sampling="scl")),
        "supcon": lambda: encoder_task(og.SupCon(0.5, 8, 2)),
        "infonce": lambda: encoder_task(),
        "balanced": lambda: encoder_task(og.SupCon(0.5, 8, 1, "skip"), power=0.0),
    }[kind]()

    def after(step):
        # The first steps build caches; step 20 ends with a log, which fetches the losses.
        torch.cuda.set_sync_debug_mode("error" if 5 <= step < 19 else "default")

    try:
        result = Loop(
            made,
            settings(steps=20, log_every=20, checkpoint_every=20, device="cuda", amp=amp, clip_norm=1.0),
            after_step=after,
        ).run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert math.isfinite(result.loss)


@needs_cuda
@pytest.mark.cuda
def test_cuda_finds_the_same_optimum():
    result = train_features(
        CLASSES, og.SupCon(0.5, 64, 2), settings=Settings(steps=2000, learning_rate=0.03, device="cuda")
    )
    assert result.distance.max_angle_error_deg < 1.0


def test_blobs_have_the_counts_that_the_tests_assume():
    assert blobs().counts.tolist() == [30, 20, 10]
