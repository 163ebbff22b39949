"""Training with contrastive losses, in torch: the only room that imports it (extra `torch`)."""
