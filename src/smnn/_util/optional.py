"""Optional packages, imported where they are used."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import ModuleType

from smnn.errors import MissingPackageError as MissingPackageError

PACKAGES = {
    "lightning_fabric": "pytorch-lightning",
    "pytorch_lightning": "pytorch-lightning",
    "odf": "odfpy",
    "sklearn": "scikit-learn",
}
"""Names on the package index that differ from the name of the module."""


def require(module: str, purpose: str) -> ModuleType:
    """Import a module of an optional package.

    Args:
        module: Dotted name.
        purpose: Completes the sentence "PACKAGE is needed to ...".

    Raises:
        MissingPackageError: It is not installed; the message has the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        top = module.split(".")[0]
        if (error.name or "").split(".")[0] != top:
            raise  # the package is installed, but one of its dependencies is not
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
