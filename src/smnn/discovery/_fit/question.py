"""What is asked of some data: which terms may stand where, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from smnn.discovery._fit.arrays import Array, Flags
from smnn.discovery._fit.flow import Link
from smnn.discovery._fit.refine import Rules
from smnn.discovery._fit.series import DataError, Nodes
from smnn.discovery._terms.terms import CompiledTerms, compile_terms


@dataclass(frozen=True)
class Question:
    """Data, candidate terms, and rules for them."""

    nodes: Nodes
    terms: CompiledTerms
    order: int
    rules: Rules
    held: Array
    """(V, P) coefficients of the terms that may not be chosen, zero elsewhere."""
    link: Link | None

    @property
    def names(self) -> list[str]:
        """Of the terms."""
        return [term.name for term in self.terms.terms]

    def only(self, keep: Flags) -> Question:
        """The same with some of the terms (P,)."""
        rules = self.rules
        ties = rules.ties
        if ties is not None:
            C = ties[0].reshape(len(ties[0]), *self.held.shape)[..., keep]
            ties = (C.reshape(len(C), -1), ties[1])
        return replace(
            self,
            terms=compile_terms(
                [term for term, k in zip(self.terms.terms, keep) if k], self.terms.variables
            ),
            rules=replace(
                rules,
                allowed=rules.allowed[:, keep],
                required=rules.required[:, keep],
                positive=rules.positive[:, keep],
                negative=rules.negative[:, keep],
                ties=ties,
                complexity=None if rules.complexity is None else rules.complexity[:, keep],
            ),
            held=self.held[:, keep],
        )

    def usable(self, phi: Array) -> tuple[Question, Flags, list[str]]:
        """The same without terms that are not finite on the data, or that may appear nowhere.

        Returns:
            The question, which terms it keeps (P,), and the names of those that are not finite.

        Raises:
            DataError: If nothing is left, or a fixed term is not finite.
        """
        good: Flags = np.asarray(np.isfinite(phi).all(0))
        bad = [name for name, g in zip(self.names, good) if not g]
        if (self.held[:, ~good] != 0).any():
            raise DataError(f"fixed terms that are not finite on the data: {', '.join(bad)}.")
        keep = good & (self.rules.allowed.any(0) | (self.held != 0).any(0))
        if not keep.any():
            raise DataError(
                "no term of the library is finite on the data; expected one that may be chosen. "
                "Choose another library."
            )
        return self.only(keep), keep, bad
