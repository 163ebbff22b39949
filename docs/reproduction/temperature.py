"""Temperature: uniformity against tolerance for three losses, and the entropy of the relative penalties."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from experiment import Results, agrees, plural, table

from optgeom.embeddings.metrics.sample_metrics import sample_metrics
from optgeom.training.batches import Augmentation
from optgeom.training.data import LabelledData, load_data
from optgeom.training.loop import Loop
from optgeom.training.losses import ContrastiveLoss, GeneralizedContrastiveLoss, HardContrastiveLoss, SupConLoss
from optgeom.training.networks import make_encoder
from optgeom.training.settings import Settings, choose_device
from optgeom.training.task import GramDistance, Task, Terms

SETTINGS = {
    "data": "digits",
    "root": "data",
    "arch": "mlp",
    "device": "cpu",
    "temperatures": [0.07, 0.15, 0.3, 0.5, 1.0],
    "share": 0.1,
    "batch": 128,
    "dim": 32,
    "steps": 800,
    "learning_rate": 1e-3,
    "seeds": [0, 1],
    "measured": 1797,
}
QUICK = {"temperatures": [0.1, 1.0], "batch": 16, "steps": 3, "seeds": [0], "measured": 200}
NAMES = {"contrastive": "contrastive (InfoNCE)", "hard": "hard contrastive", "simple": "simple"}
DERIVATIVE = 1e-4  # relative error of the derivative of the entropy that is called agreement
ENTROPY_ROWS = 400


class UnlabelledTask(Task):
    """An encoder on two views of each image, without labels; they are only measured with."""

    def __init__(
        self, encoder: torch.nn.Module, data: LabelledData, loss: ContrastiveLoss, batch: int, seed: int
    ) -> None:
        self.module, self.loss, self.data, self.batch = encoder, loss, data, batch
        self.expected_count, self.optimal_loss, self.description = 2.0 * batch, None, {}
        self._augmentation = Augmentation.usual(tuple(data.inputs.shape[1:]), mirrored=data.mirrored)
        self._chooser = torch.Generator().manual_seed(seed)
        self._seed = seed
        self.to(torch.device("cpu"))

    def to(self, device: torch.device) -> None:
        """The encoder and the data."""
        self.module.to(device)
        self._inputs = self.data.inputs.to(device)
        self._generator = torch.Generator(device=device).manual_seed(self._seed)

    def terms(self) -> Terms:
        """Loss of the next batch of distinct images."""
        chosen = torch.randperm(self.data.num_samples, generator=self._chooser)[: self.batch].repeat_interleave(2)
        views = self._augmentation(self._inputs[chosen.to(self._inputs.device)], self._generator)
        features = self.module(views)
        total, count = self.loss.sum_and_count(features.view(self.batch, 2, -1))
        return Terms(total=total, count=count, inputs=views.detach().sum(), features=features.detach().float().sum())

    def distance(self) -> GramDistance:
        """Nothing to compare with: without labels the classes are not known to the loss."""
        return GramDistance(max_angle_error_deg=None, class_r2=None, relative_frobenius=None, angles_deg=None)

    @torch.no_grad()
    def embed(self, rows: np.ndarray) -> np.ndarray:
        """(m, d) unit features of images as they are."""
        self.module.eval()
        parts = [self.module(part) for part in self._inputs[torch.from_numpy(rows).to(self._inputs.device)].split(1024)]
        return np.asarray(torch.nn.functional.normalize(torch.cat(parts).double(), dim=1).cpu().numpy())

    def state(self) -> dict[str, Any]:
        """Never saved: a run takes seconds."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Never loaded."""


def losses(settings: Results) -> list[tuple[str, float | None, ContrastiveLoss]]:
    """(name, temperature, loss); the simple loss has no temperature.

    A temperature would only scale that loss, and Adam does not depend on the scale.
    """
    pairs: list[tuple[str, float | None, ContrastiveLoss]] = []
    for tau in settings["temperatures"]:
        pairs.append(("contrastive", tau, SupConLoss(tau)))
        pairs.append(("hard", tau, HardContrastiveLoss(tau, settings["share"])))
    return [
        *pairs,
        ("simple", None, GeneralizedContrastiveLoss(1.0, settings["batch"] - 1, psi=lambda t: t.mean(dim=-1))),
    ]


def entropies(rows: np.ndarray, temperatures: list[float]) -> list[list[float]]:
    """(T, mean entropy of r_i, its derivative by the formula, the same by differences) at fixed features."""
    cosines = rows @ rows.T
    number = len(rows)
    others = cosines[~np.eye(number, dtype=bool)].reshape(number, number - 1)

    def penalties(tau: float) -> np.ndarray:
        weights = np.exp((others - others.max(axis=1, keepdims=True)) / tau)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def entropy(tau: float) -> float:
        return float(
            sample_metrics(rows, np.zeros(number, dtype=np.intp), temperature=tau, size=number).penalty_entropy.value
        )

    derivatives = []
    for tau in temperatures:
        r = penalties(tau)
        mean = (r * others).sum(axis=1, keepdims=True)
        formula = float((r * (others - mean) ** 2).sum(axis=1).mean()) / tau**3
        step = 1e-3 * tau
        derivatives.append([tau, entropy(tau), formula, (entropy(tau + step) - entropy(tau - step)) / (2 * step)])
    return derivatives


def run(settings: Results) -> Results:
    data = load_data(settings["data"], root=settings["root"])
    device = str(choose_device(settings["device"]))
    rows: list[dict[str, Any]] = []
    fixed: list[list[float]] = []
    for name, tau, loss in losses(settings):
        measured = []
        for seed in settings["seeds"]:
            encoder = make_encoder(settings["arch"], tuple(data.inputs.shape[1:]), dim=settings["dim"], seed=seed)
            task = UnlabelledTask(encoder, data, loss, settings["batch"], seed)
            how = Settings(
                steps=settings["steps"],
                learning_rate=settings["learning_rate"],
                device=device,
                seed=seed,
                average_from=1.0,
                log_every=settings["steps"],
            )
            Loop(task, how).run()
            chosen = np.random.default_rng(0).permutation(data.num_samples)[: settings["measured"]]
            features = task.embed(chosen)
            metrics = sample_metrics(
                features, data.codes.numpy()[chosen], temperature=tau or 1.0, size=settings["measured"]
            )
            measured.append(
                [
                    metrics.uniformity.value,
                    metrics.tolerance.value,
                    metrics.conditional_tolerance.value,
                    metrics.cac.value,
                    metrics.penalty_entropy.value,
                ]
            )
            if name == "contrastive" and not fixed:
                fixed = entropies(features[:ENTROPY_ROWS], settings["temperatures"])
        rows.append({"loss": name, "temperature": tau, "measured": measured})
    return {"rows": rows, "entropies": fixed}


def curve(results: Results, name: str) -> np.ndarray:
    """(temperatures, 5) means over seeds."""
    return np.array([np.mean(row["measured"], axis=0) for row in results["rows"] if row["loss"] == name])


def rising(values: np.ndarray) -> bool:
    return bool(np.all(np.diff(values) > 0))


def directions(results: Results) -> list[tuple[str, str, str, bool]]:
    """(statement, source, ours, whether it holds)."""
    plain, hard, simple = (curve(results, name) for name in ("contrastive", "hard", "simple"))

    def path(values: np.ndarray) -> str:
        return ", ".join(f"{value:.3f}" for value in values)

    taus = results["settings"]["temperatures"]
    fixed = np.array(results["entropies"])
    misses = float(np.max(np.abs(fixed[:, 3] / fixed[:, 2] - 1)))
    spans = [float(np.ptp(one[:, 0])) for one in (plain, hard)]
    gaps = np.abs(plain[:, 0] - simple[0, 0])
    paper, ours = "Wang & Liu, direction", "our theory"
    return [
        (
            "contrastive: features less uniform as T rises",
            paper,
            f"uniformity {path(plain[:, 0])}",
            rising(plain[:, 0]),
        ),
        ("contrastive: more tolerant as T rises", paper, f"tolerance {path(plain[:, 1])}", rising(plain[:, 1])),
        (
            "T to infinity is the simple loss: uniformity comes nearer to its",
            "limit of the loss",
            f"simple {simple[0, 0]:.3f}; away by {path(gaps)}",
            rising(-gaps),
        ),
        (
            "hard: uniformity depends less on T",
            "argument: only near negatives push, at any T",
            f"range {spans[1]:.3f} against {spans[0]:.3f}",
            spans[1] < spans[0],
        ),
        (
            f"hard: more uniform than contrastive at T = {taus[-1]:g}",
            "the same argument",
            f"{hard[-1, 0]:.3f} against {plain[-1, 0]:.3f}",
            bool(hard[-1, 0] < plain[-1, 0]),
        ),
        ("entropy of r_i rises with T, features fixed", ours, f"{path(fixed[:, 1])} nats", rising(fixed[:, 1])),
        ("dH/dT = Var_r(s) / T^3", ours, f"relative difference at most {misses:.0e}", misses <= DERIVATIVE),
    ]


def markdown(results: Results) -> str:
    settings = results["settings"]
    stated = [[what, source, ours, agrees(holds)] for what, source, ours, holds in directions(results)]
    lines = []
    for row in results["rows"]:
        mean = np.mean(row["measured"], axis=0)
        # The simple loss has no temperature of its own, so no penalties at it.
        tau, entropy = ("-", "-") if row["temperature"] is None else (f"{row['temperature']:g}", f"{mean[4]:.2f}")
        lines.append(
            [NAMES[row["loss"]], tau, f"{mean[0]:.3f}", f"{mean[1]:.4f}", f"{mean[2]:.3f}", f"{mean[3]:.3f}", entropy]
        )
    header = [
        "loss",
        "T",
        "uniformity",
        "tolerance",
        "within classes only",
        "same class among neighbours",
        "entropy of r_i (nats)",
    ]
    caption = (
        f"{settings['data']}, {settings['arch']} to {settings['dim']} dimensions, no labels, batches of "
        f"{settings['batch']} images with "
        f"two augmented views, Adam, {settings['steps']} steps, means over {plural(settings['seeds'])}; measured on "
        f"{settings['measured']} "
        f"images without augmentation. The hard loss keeps the nearest {settings['share']:.0%} of the negatives. "
        f"Temperatures in order: "
        f"{', '.join(f'{tau:g}' for tau in settings['temperatures'])}. Entropy at fixed features: {ENTROPY_ROWS} "
        f"images, the contrastive "
        f"encoder of T = {settings['temperatures'][0]:g}, seed {settings['seeds'][0]}."
    )
    measured = table(header, lines)
    return f"{table(['stated', 'by', 'ours', 'agrees'], stated)}\n\n{measured}\n\n{caption}"


SIZE = (8.0, 3.6)


def draw(results: Results, figure: Any) -> None:
    """Tolerance against uniformity; entropy against temperature."""
    from optgeom.plotting.figures import BLACK, BLUE, ORANGE

    left, right = figure.subplots(1, 2)
    taus = results["settings"]["temperatures"]
    for name, colour, mark in (("contrastive", BLUE, "o-"), ("hard", ORANGE, "s-"), ("simple", BLACK, "^")):
        means = curve(results, name)
        left.plot(-means[:, 0], means[:, 1], mark, color=colour, markersize=5, label=NAMES[name])
        if name == "contrastive":
            for tau, x, y in zip(taus, -means[:, 0], means[:, 1], strict=True):
                left.annotate(f"{tau:g}", (x, y), textcoords="offset points", xytext=(6, 2), fontsize=8, color=colour)
    left.margins(x=0.14)
    left.set_xlabel("more uniform  →  (minus the uniformity loss)")
    left.set_ylabel("tolerance")
    left.set_title("Trade-off; numbers: temperature", fontsize=10)
    left.legend(frameon=False, fontsize=8)
    fixed = np.array(results["entropies"])
    right.plot(fixed[:, 0], fixed[:, 1], "o-", color=BLUE, markersize=5, label="features fixed")
    means = curve(results, "contrastive")
    right.plot(taus, means[:, 4], "s--", color=ORANGE, markersize=5, label="each T on its own features")
    right.set_xlabel("temperature")
    right.set_ylabel("entropy of r_i (nats)")
    right.set_title("Relative penalties", fontsize=10)
    right.legend(frameon=False, fontsize=8, loc="lower right")
