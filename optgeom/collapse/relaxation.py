r"""relaxation: how fast angles settle in training, mode by mode, and which classes settle last.

Gradient flow of the class means v_i (unit rows) near the optimum, linearised on the tangent space of the spheres in
rank(A) dimensions, moves a mode x at its own rate:

    free features:   Hess x = rate Diag(lam) x    (a sample moves by minus its gradient; a share lam_i is of class i),
    network:         Hess x = rate x              (samples share weights: means move by -kappa dF/dV to first order).

Times are in units of learning rate x steps / number of samples (free features), or of kappa x the sum of learning rates
(network: kappa is a property of the network and its optimiser, of the order of 1000 for Adam and a small MLP; it is
measured, not derived). A factor T / T_base in front of the loss multiplies the rates. Rotations of all means are
d(d-1)/2 modes of rate 0 and are left out. Each further dimension adds C - 1 rotations and one stiff mode x ~ z / lam of
rate sum z_i^2 / lam_i.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.linalg

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.errors import IncompatibleError, InvalidInputError, SolverError
from optgeom.geometry import Geometry
from optgeom.programs.class_mean import ClassMeanProgram

KERNELS = ("network", "free")
LARGEST_DENSE = 1200  # unknowns of the eigenvalue problem that is solved whole
MODES = 6  # slowest modes that are computed of larger ones
KAPPA = 1000.0  # class-mean kernel per unit of learning rate of a small MLP under Adam, measured
ACCURACY = 1e-6  # of eigenvectors in the iterative method: rates are good to its square
SOLVE, ITERATIONS = 1e-9, 3000  # of conjugate gradients within it
SEED = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Relaxation:
    """Rates at which a small displacement of the class means decays.

    Attributes
    ----------
    geometry : Geometry
    kernel : {"network", "free"}
    rates : (k,)
        Ascending: all of them for small problems, else the slowest ones (of equal rates perhaps not every copy) and the
        fastest.
    motion : (k, C)
        For each rate, how far its mode moves each class mean, relative to the class that moves most.
    stiff : float or None
        Rate of the mode that each dimension beyond the rank adds (free features, rank C - 1).
    """

    geometry: Geometry
    kernel: Literal["network", "free"]
    rates: Array
    motion: Array
    stiff: float | None

    @property
    def slowest(self) -> float:
        """Rate of the slowest change of an angle."""
        return float(self.rates[0])

    @property
    def fastest(self) -> float:
        """Rate of the fastest change of an angle."""
        return float(self.rates[-1])

    def slow_classes(self, limit: int = 5) -> tuple[str, ...]:
        """Names of the classes that the slowest mode moves most, most first."""
        order = np.argsort(-self.motion[0], kind="stable")[:limit]
        return tuple(self.geometry.names[int(which)] for which in order)

    def steps(
        self,
        *,
        learning_rate: float,
        samples: int | None = None,
        base_temperature: float | None = None,
        kappa: float = KAPPA,
    ) -> float:
        """Steps of constant learning rate in which the slowest displacement falls by the factor e.

        Parameters
        ----------
        learning_rate : float
            > 0.
        samples : int
            Free features: how many there are (each moves by its own gradient of the mean loss).
        base_temperature : float, optional
            T_base of code that multiplies the loss by temperature / T_base.
        kappa : float
            Network: class-mean kernel per unit of learning rate.

        Raises
        ------
        InvalidInputError
            A value outside its domain, or no `samples` for free features.
        """
        _checks.real("learning_rate", learning_rate, above=0.0)
        scale = 1.0
        if base_temperature is not None:
            scale = self.geometry.loss.require_shared_temperature("base_temperature") / _checks.real(
                "base_temperature", base_temperature, above=0.0
            )
        if self.kernel == "network":
            return 1.0 / (_checks.real("kappa", kappa, above=0.0) * self.slowest * learning_rate * scale)
        if samples is None:
            raise InvalidInputError(
                "`samples` must be given for free features; got None (the number of feature vectors)"
            )
        return _checks.integer("samples", samples, at_least=1) / (self.slowest * learning_rate * scale)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "kernel": self.kernel,
            "slowest": self.slowest,
            "fastest": self.fastest,
            "slow_classes": list(self.slow_classes()),
            "stiff": self.stiff,
        }


def relaxation(geometry: Geometry, *, kernel: Literal["network", "free"] = "network") -> Relaxation:
    """Rates at which angles settle near the optimum.

    Parameters
    ----------
    geometry : Geometry
        A certified optimum.
    kernel : {"network", "free"}
        Class means that share the weights of a network, or feature vectors that move by themselves.

    Returns
    -------
    Relaxation

    Raises
    ------
    IncompatibleError
        A geometry in fewer dimensions than its optimum needs.

    Examples
    --------
    >>> import optgeom as og
    >>> classes = og.ClassDistribution.from_counts([5000, 1500, 400, 100])
    >>> slow, fast = (og.relaxation(og.solve(classes, og.SupCon(temperature=t)), kernel="free") for t in (0.1, 0.5))
    >>> print(f"{fast.slowest / slow.slowest:.0f} times slower at T = 0.1")
    1354 times slower at T = 0.1
    """
    _checks.instance("geometry", geometry, Geometry, "og.solve gives one")
    _checks.choice("kernel", kernel, KERNELS)
    if geometry.bracket is not None:
        raise IncompatibleError(
            "`geometry` must be an optimum without a limit of dimension; got a bracket (leave `dim` out)"
        )
    hessian = _Hessian(geometry)
    weight = geometry.proportions if kernel == "free" else np.ones(geometry.num_classes)
    solve = _dense if hessian.size <= LARGEST_DENSE else _iterative
    rates, modes = solve(hessian, weight)
    motion = np.linalg.norm(modes, axis=2)
    motion /= np.maximum(motion.max(axis=1, keepdims=True), 1e-300)
    return Relaxation(
        geometry=geometry, kernel=kernel, rates=rates, motion=motion, stiff=_stiff(geometry, hessian, weight)
    )


class _Hessian:
    """Second derivative of F(V V') on the tangent space of unit rows, at the optimum in rank(A) dimensions."""

    def __init__(self, geometry: Geometry) -> None:
        program = ClassMeanProgram.build(geometry.classes, geometry.loss, grouped=False)
        program.require_smooth("geometry", "how angles settle")
        self.means = geometry.prototypes()
        if program.sizes.size != geometry.num_classes:
            raise IncompatibleError(
                "`geometry` of a full batch with several classes of one row has no rates of its own classes"
            )
        self.gram = np.asarray(geometry.gram)
        gradient = np.where(program.count > 0, program.gradient(self.gram), 0.0)
        self.dual = gradient - np.diag((gradient * self.gram).sum(axis=1))
        self.derivative = program.gradient_derivative(self.gram)
        self.curvature = program.pair_curvature(self.gram, gradient)
        self.classes, self.dim = self.means.shape

    @property
    def size(self) -> int:
        """Dimension of the tangent space."""
        return int(self.classes * max(self.dim - 1, 0))

    def project(self, moves: Array) -> Array:
        """Component orthogonal to each mean."""
        return np.asarray(moves - np.einsum("cd,cd->c", moves, self.means)[:, None] * self.means)

    def row_block_inverse(self) -> Array:
        """(C, d, d) inverses of the Hessian of each mean while the others stand still: a preconditioner."""
        curvature = self.curvature
        outer = (self.means[:, :, None] * self.means[:, None, :]).reshape(self.classes, -1)
        blocks = 2 * (curvature @ outer).reshape(self.classes, self.dim, self.dim)
        size = 2 * np.abs(np.diag(self.dual))
        blocks[:, np.arange(self.dim), np.arange(self.dim)] += np.maximum(size, 1e-12 * size.max())[:, None]
        return np.asarray(np.linalg.inv(blocks))

    def product(self, moves: Array) -> Array:
        """Hessian times a (C, d) tangent direction: 2 P (Z X + dG V)."""
        change = moves @ self.means.T
        change = change + change.T
        np.fill_diagonal(change, 0.0)
        force = self.derivative(change)
        np.fill_diagonal(force, 0.0)
        return self.project(2 * (self.dual @ moves + force @ self.means))


def _dense(hessian: _Hessian, weight: Array) -> tuple[Array, Array]:
    """All rates and modes but the rotations."""
    classes, dim = hessian.classes, hessian.dim
    if dim < 2:  # two opposite points: no angle can move in one dimension
        return np.zeros(1), np.zeros((1, classes, dim))
    frames = np.stack([scipy.linalg.null_space(row[None, :]) for row in hessian.means])  # (C, d, d - 1)
    matrix = np.empty((hessian.size, hessian.size))
    for column in range(hessian.size):
        member, axis = divmod(column, dim - 1)
        moves = np.zeros((classes, dim))
        moves[member] = frames[member, :, axis]
        matrix[:, column] = np.einsum("cd,cdk->ck", hessian.product(moves), frames).ravel()
    metric = np.repeat(weight, dim - 1)
    root = 1.0 / np.sqrt(metric)
    rates, vectors = np.linalg.eigh((matrix + matrix.T) / 2 * root[:, None] * root[None, :])
    vectors = (vectors * root[:, None]).T.reshape(-1, classes, dim - 1)
    modes = np.einsum("kcj,cdj->kcd", vectors, frames)
    kept = np.argsort(rates, kind="stable")[dim * (dim - 1) // 2 :]
    return rates[kept], modes[kept]


def _iterative(hessian: _Hessian, weight: Array) -> tuple[Array, Array]:
    """The slowest rates and the fastest one, by Lanczos on W^(-1/2) H W^(-1/2) and on its pseudo-inverse.

    A product with the pseudo-inverse is a conjugate-gradient solve of a consistent singular system: right-hand sides
    are kept orthogonal to the rotations, and solutions in the metric W of the weights.
    """
    from scipy.sparse.linalg import LinearOperator, cg, eigsh

    classes, dim = hessian.classes, hessian.dim
    shape = (classes * dim,) * 2
    root = np.sqrt(weight)[:, None]
    rotations = _Rotations(hessian.means, weight)
    blocks = hessian.row_block_inverse()
    normal = np.einsum("cij,cj->ci", blocks, hessian.means)
    normal_size = (normal * hessian.means).sum(axis=1)

    def operator(product: Callable[[Array], Array]) -> Any:
        return LinearOperator(shape, matvec=lambda flat: product(flat.reshape(classes, dim)).ravel(), dtype=np.float64)

    def scaled(moves: Array) -> Array:
        return np.asarray(hessian.project(hessian.product(hessian.project(moves / root))) / root)

    def precondition(moves: Array) -> Array:
        solved = np.einsum("cij,cj->ci", blocks, hessian.project(moves))
        return np.asarray(solved - ((solved * hessian.means).sum(axis=1) / normal_size)[:, None] * normal)

    matrix, preconditioner = operator(lambda moves: hessian.product(hessian.project(moves))), operator(precondition)

    def inverse(moves: Array) -> Array:
        force = rotations.remove_from_force(hessian.project(moves * root))
        solution, failed = cg(matrix, force.ravel(), rtol=SOLVE, M=preconditioner, maxiter=ITERATIONS)
        if failed:
            raise SolverError(
                f"the rates of {classes} classes did not converge in {ITERATIONS} steps (try a larger temperature)"
            )
        return np.asarray(rotations.remove_from_motion(solution.reshape(classes, dim)) * root)

    start = np.random.default_rng(SEED).standard_normal(shape[0])
    fastest, top = eigsh(operator(scaled), k=1, which="LA", v0=start, tol=ACCURACY)
    times, vectors = eigsh(operator(inverse), k=MODES, which="LA", v0=start, tol=ACCURACY)
    order = np.argsort(-times)
    modes = np.concatenate([vectors[:, order].T, top.T]).reshape(-1, classes, dim) / root
    return np.concatenate([1.0 / times[order], fastest]), modes


class _Rotations:
    """The modes V S, S skew-symmetric, on which no rate depends."""

    def __init__(self, means: Array, weight: Array) -> None:
        self.means = means
        self.weighted = weight[:, None] * means
        self.values, self.axes = np.linalg.eigh(means.T @ self.weighted)

    def _skew(self, turn: Array) -> Array:
        """S with N S + S N = turn - turn', N = V'WV."""
        rotated = self.axes.T @ (turn - turn.T) @ self.axes
        return np.asarray(self.axes @ (rotated / (self.values[:, None] + self.values[None, :])) @ self.axes.T)

    def remove_from_motion(self, moves: Array) -> Array:
        """The W-orthogonal complement of a direction."""
        return np.asarray(moves - self.means @ self._skew(self.weighted.T @ moves))

    def remove_from_force(self, force: Array) -> Array:
        """The transpose: what is left of a force is orthogonal to all rotations."""
        return np.asarray(force - self.weighted @ self._skew(self.means.T @ force))


def _stiff(geometry: Geometry, hessian: _Hessian, weight: Array) -> float | None:
    """Rate sum z_i^2 / w_i of the mode that a further dimension adds, with Z = z z' / 2."""
    if geometry.rank != geometry.num_classes - 1 or geometry.num_classes < 3:
        return None
    return float(np.sum(2 * np.diag(hessian.dual) / weight))
