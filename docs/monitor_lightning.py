"""The Lightning module of monitor-my-training.md, trained on noisy images of three classes.

python docs/monitor_lightning.py
"""

from __future__ import annotations

try:
    import lightning as L
except ImportError:
    import pytorch_lightning as L
import torch

import optgeom as og
from optgeom.training.losses import SupConLoss
from optgeom.training.monitor import GeometryMonitor


class Encoder(L.LightningModule):
    """An encoder trained with SupCon, its features monitored."""

    def __init__(self, classes: og.ClassDistribution, temperature: float = 0.5, batch_size: int = 64) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
        self.loss = SupConLoss(temperature)
        law = og.SupCon(temperature, batch_size=batch_size, views=2)
        self.monitor = GeometryMonitor(classes, law, window=50, prefix="geometry/")
        self.monitor.persistent(True)  # checkpoints hold the window

    def training_step(self, batch, batch_idx):
        views, labels = batch
        features = self.net(views)
        self.monitor.update(features, labels)
        if (batch_idx + 1) % 50 == 0:
            self.log_dict(self.monitor.compute())
        loss = self.loss(features, labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


class Batches(torch.utils.data.IterableDataset):
    """Batches of two views of images drawn with replacement."""

    def __init__(self, counts: list[int], batch_size: int, number: int) -> None:
        self.labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        self.images = torch.randn(len(counts), 20)[self.labels] + 0.5 * torch.randn(len(self.labels), 20)
        self.batch_size, self.number = batch_size, number

    def __iter__(self):
        for _ in range(self.number):
            drawn = torch.randint(len(self.labels), (self.batch_size,))
            yield self.images[drawn, None] + 0.1 * torch.randn(self.batch_size, 2, 20), self.labels[drawn]


def train(folder: str | None = None) -> dict[str, float]:
    """The last logged numbers."""
    L.seed_everything(0, verbose=False)
    counts = [600, 120, 40]
    encoder = Encoder(og.ClassDistribution.from_counts(counts))
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
    }
    trainer = L.Trainer(max_epochs=1, accelerator="auto", devices=1, default_root_dir=folder, **quiet)
    trainer.fit(encoder, torch.utils.data.DataLoader(Batches(counts, 64, 300), batch_size=None))
    return {name: float(value) for name, value in trainer.logged_metrics.items()}


if __name__ == "__main__":
    for name, value in train().items():
        print(f"{name:40s} {value:.4g}")
