"""Fields that follow known partial differential equations, and the integrator behind them."""

from smnn.datasets.fields._columns import IMAGINARY as IMAGINARY
from smnn.datasets.fields._columns import Column as Column
from smnn.datasets.fields._columns import Columns as Columns
from smnn.datasets.fields._laws import LAWS as LAWS
from smnn.datasets.fields._laws import FieldData as FieldData
from smnn.datasets.fields._laws import FieldLaw as FieldLaw
from smnn.datasets.fields._laws import simulate_law as simulate_law
from smnn.datasets.fields._spectral import Compiled as Compiled
from smnn.datasets.fields._spectral import Etdrk4 as Etdrk4
from smnn.datasets.fields._spectral import Integration as Integration
from smnn.datasets.fields._spectral import PeriodicGrid as PeriodicGrid
from smnn.datasets.fields._spectral import SpectralLaw as SpectralLaw
from smnn.datasets.fields._spectral import integrate as integrate
from smnn.datasets.fields._spectral import march as march
