import subprocess
import sys

import pytest

import hff


@pytest.mark.parametrize("name", hff.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(hff, name) is not None
    assert name in dir(hff)


def test_public_names_are_what_their_modules_hold() -> None:
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
