"""The settings file of a comparison."""

from pathlib import Path

from hff.comparison.settings import PROTOCOL, SCHEMA, ComparisonSettings
from hff.errors import UserError, shortened
from hff.files import read_json

SETTINGS, OLD_SETTINGS = "settings.json", "terms.json"
"""Version 0.1.0 saved the settings in terms.json, under the key "terms"."""


def read_comparison(folder: Path) -> tuple[ComparisonSettings, list[str]] | None:
    """The settings and the methods of the comparison in a folder; None if there is none.

    A comparison of another version of the protocol is refused, so that its results are never mixed with those
    of this version.
    """
    path = folder / SETTINGS
    if not path.exists():
        if (folder / OLD_SETTINGS).exists():
            raise _other_protocol(folder, None)
        return None
    protocol = read_json(path, dict).get("protocol")
    if protocol != PROTOCOL:
        raise _other_protocol(folder, protocol)
    found = read_json(path, {"settings": SCHEMA, "methods": [str]})
    try:
        return ComparisonSettings.from_mapping(found["settings"]), list(found["methods"])
    except UserError as error:
        reason = shortened(str(error))
        raise UserError(
            f"{path} was written by another version of hff ({reason}); choose another folder."
        ) from None
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({shortened(str(error))}); choose another folder.") from None


def _other_protocol(folder: Path, protocol: object) -> UserError:
    kind = "from before protocols had versions" if protocol is None else f"of protocol {protocol}"
    return UserError(
        f"{folder} contains a comparison {kind}, but this version of hff follows protocol {PROTOCOL}; choose "
        "another folder."
    )
