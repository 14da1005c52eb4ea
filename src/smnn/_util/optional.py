"""Packages that `import smnn` does not need, imported where they are used."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import ModuleType

PACKAGES = {
    "lightning_fabric": "pytorch-lightning",
    "pytorch_lightning": "pytorch-lightning",
    "sklearn": "scikit-learn",
}
"""Where a package is called otherwise than its module."""


class MissingPackageError(RuntimeError):
    """A package that an experiment needs is not installed."""


def require(module: str, purpose: str) -> ModuleType:
    """Import a module.

    Args:
        module: Its dotted name.
        purpose: What it is needed for, to complete "... is needed to".

    Raises:
        MissingPackageError: If it is not there, with the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        top = module.split(".")[0]
        if (error.name or "").split(".")[0] != top:
            raise  # it is there, and something that it needs is not
        package = PACKAGES.get(top, top)
        raise MissingPackageError(
            f"{package} is needed to {purpose}; pip install {package}."
        ) from error


def require_extra(modules: Iterable[str], purpose: str, extra: str) -> None:
    """Check that the packages of an optional extra are installed.

    Raises:
        MissingPackageError: If one is missing, with the command that installs the extra.
    """
    for module in modules:
        try:
            require(module, purpose)
        except MissingPackageError:
            package = PACKAGES.get(module, module)
            raise MissingPackageError(
                f"{package} is needed to {purpose}; pip install 'smnn[{extra}]'."
            ) from None
