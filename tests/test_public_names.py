"""The public names of the package, which are imported on first use."""

import subprocess
import sys

import pytest

import hff


def test_every_public_name_can_be_imported() -> None:
    assert all(getattr(hff, name) is not None for name in hff.__all__)
    assert set(hff.__all__) <= set(dir(hff))


def test_public_names_are_the_objects_of_their_modules() -> None:
    from hff.methods.hff import HFF
    from hff.training import fit

    assert hff.HFF is HFF is hff.methods.methods["hff"]
    assert hff.fit is fit


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        hff.nothing  # noqa: B018


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, hff; hff.__version__; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
