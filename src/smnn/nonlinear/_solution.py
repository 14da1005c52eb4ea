"""What all functions of this package return."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from smnn.errors import SolveError
from smnn.nonlinear._collocation import Collocation


@dataclasses.dataclass(frozen=True)
class Solution:
    """A trajectory with the outcome of the iteration. `reasons` says what to know before using it.

    Samples that did not converge are NaN in `y`.
    """

    t: Tensor
    """`(N,)` the times that were asked for."""
    y: Tensor
    """`(*B, N, V)`"""
    params: dict[str, Tensor]
    """Parameters by name, `(*B)` each."""
    ok: Tensor
    """`(*B)`: whether the sample converged, to the tolerances, and fits its data."""
    reasons: tuple[str, ...]
    """For each sample why it is not `ok`; empty where it is."""
    error: Tensor
    """`(*B)` estimated error of `y`, the largest in units of the tolerances; NaN if unknown."""
    iterations: int
    """Linear solves over a trajectory or a part of one."""
    mesh: Tensor
    """`(K+1,)` the nodes of the solver."""
    sd: Tensor | None = None
    """`(*B, N, V)` standard deviations of `y`, if there are data."""
    params_sd: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    """Standard deviations of the parameters."""
    chi2: Tensor | None = None
    """`(*B)` mean square of the residuals of the data in units of `sigma`, near 1 if these are
    right."""
    _dense: tuple[Collocation, Tensor, Tensor] | None = dataclasses.field(default=None, repr=False)

    def at(self, times: Tensor) -> Tensor:
        """The trajectory between the nodes, `(*B, len(times), V)`; not differentiable.

        Raises:
            ValueError: A time lies outside of the solution.
        """
        assert self._dense is not None
        times = times.to(self.mesh)
        low, high = self.mesh[0].item(), self.mesh[-1].item()
        if bool(((times < low) | (times > high)).any()):
            raise ValueError(
                f"times: got {times.min():g} to {times.max():g}; expected times in [{low:g}, "
                f"{high:g}], where the solution is known."
            )
        system, x, Z = self._dense
        found = system.at(x, Z, times)
        return found.reshape(*self.ok.shape, *found.shape[1:])

    def check(self) -> Solution:
        """Return the solution itself if all samples are `ok`.

        Raises:
            SolveError: With the reason of the first sample that is not.
        """
        failed = [i for i, reason in enumerate(self.reasons) if reason]
        if failed:
            of = f" ({len(failed)} of {len(self.reasons)} samples)" if self.ok.ndim else ""
            raise SolveError(f"sample {failed[0]}: {self.reasons[failed[0]]}{of}.")
        return self


def not_a_number(x: Tensor, converged: Tensor) -> Tensor:
    """`x` with NaN in samples that failed."""
    return torch.where(converged.view(-1, *[1] * (x.ndim - 1)), x, torch.nan)
