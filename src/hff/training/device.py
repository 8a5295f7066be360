"""The device to compute on."""

import torch

from hff.errors import UserError


def pick_device(name: str = "auto") -> torch.device:
    """The device of this name; auto selects the fastest one available."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if available[kind])
    if not available.get(name.partition(":")[0], False):
        raise UserError(f"Device {name!r} is not available here; choose auto or cpu.")
    return torch.device(name)


def wait_for(device: torch.device) -> None:
    """Waits until the device has finished all work, which is needed before reading a clock."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
