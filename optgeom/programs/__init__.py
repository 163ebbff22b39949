"""Programs over Gram matrices of unit vectors: their values, gradients and curvatures."""
