"""Fields that follow known partial differential equations, and the integrator behind them."""

from smnn.datasets.fields._columns import IMAGINARY, Column, Columns
from smnn.datasets.fields._laws import LAWS, FieldData, FieldLaw, simulate_law
from smnn.datasets.fields._spectral import (
    Compiled,
    Etdrk4,
    Integration,
    PeriodicGrid,
    SpectralLaw,
    integrate,
    march,
)

__all__ = [
    "IMAGINARY",
    "LAWS",
    "Column",
    "Columns",
    "Compiled",
    "Etdrk4",
    "FieldData",
    "FieldLaw",
    "Integration",
    "PeriodicGrid",
    "SpectralLaw",
    "integrate",
    "march",
    "simulate_law",
]  # fmt: skip
