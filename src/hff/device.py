"""The device to compute on."""

import torch

from hff.errors import UserError, quoted


def pick_device(device: torch.device | str = "auto") -> torch.device:
    """The device of this name; auto selects the fastest one available."""
    name = str(device)
    available = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if available[kind])
    kind, _, number = name.partition(":")
    count = available.get(kind, 0)
    if not count or number not in ("", *map(str, range(count))):
        raise UserError(f"Device {quoted(device)} is not available here; choose auto or cpu.")
    return torch.device(name)


def wait_for(device: torch.device) -> None:
    """Waits until the device has finished all work, which is needed before reading a clock."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
