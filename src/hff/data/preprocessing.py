"""Normalization of stored values to network inputs. It is saved with every run."""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from hff.data.augmentation import center
from hff.data.readers.images import SUFFIXES, open_image, pixels, with_margin
from hff.errors import UserError


@dataclass(frozen=True)
class Preprocessing:
    """Computes (stored value / scale - mean) / std, per channel of an image or per column of a table."""

    mean: tuple[float, ...]
    """One value per channel or column, or a single value for all."""
    std: tuple[float, ...]
    """Like `mean`."""
    scale: float
    """The largest stored value: 255 for images, 16 for digits, 1 for tables."""
    size: tuple[int, ...]
    """The shape of one input: [C, H, W] or [D]."""
    margin: float = 1.0
    """The size to which an image file is scaled before its center is cut out, relative to `size` (ImageNet:
    256/224)."""

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            count = len(getattr(self, name))
            if count not in (1, self.size[0]):
                raise UserError(
                    f"The {name} of the inputs must have one value, or one for each of the {self.size[0]} "
                    f"channels or columns, not {count}."
                )

    def __call__(self, x: Tensor) -> Tensor:
        """Turns stored values, uint8 or float [B, *size], into float32 of the same shape."""
        if tuple(x.shape[1:]) != self.size:
            raise UserError(f"Each input must have the shape {list(self.size)}, not {list(x.shape[1:])}.")
        # The mean of a column of years is far larger than its spread, so floats are centered in float64.
        kind = torch.float64 if x.is_floating_point() else torch.float32
        factor, offset = (each.to(x.device, kind) for each in self._factor_and_offset)
        result = x.to(kind).mul_(factor) if x.dtype != kind else x * factor
        result = result.add_(offset).float()
        if x.is_floating_point() and not bool(torch.isfinite(result).all()):
            wrong = int((~torch.isfinite(result)).sum())
            raise UserError(
                f"{wrong} of {result.numel()} input values are NaN, infinite or far too large; replace them."
            )
        return result

    @cached_property
    def _factor_and_offset(self) -> tuple[Tensor, Tensor]:
        """Both in float64, in a shape that broadcasts to [B, *size]."""
        trailing = (1,) * (len(self.size) - 1)
        mean = torch.tensor(self.mean, dtype=torch.float64).view(-1, *trailing)
        std = torch.tensor(self.std, dtype=torch.float64).view(-1, *trailing)
        return 1 / (self.scale * std), -mean / std

    def read_image(self, path: Path | str) -> Tensor:
        """Reads an image file of any size into a network input [C, H, W]."""
        return self(self.stored_image(path)[None])[0]

    def stored_image(self, path: Path | str) -> Tensor:
        """Reads an image file of any size into stored values, float [C, H, W], before normalization."""
        if len(self.size) != 3:
            what = "an image" if Path(path).suffix.lower() in SUFFIXES else "not an .npz file"
            raise UserError(
                f"{path} is {what}, but this network takes rows of {self.size[0]} numbers; save them with "
                "numpy.savez(path, x=x)."
            )
        channels, height, width = self.size
        image = open_image(Path(path), channels, (height, width), self.margin)
        stored = pixels(with_margin(image, (height, width), self.margin))[None]
        return center(stored, self.size).float()[0] * (self.scale / 255)

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers, from which `from_json` restores the object."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Self:
        return cls(
            mean=tuple(plain["mean"]),
            std=tuple(plain["std"]),
            scale=plain["scale"],
            size=tuple(plain["size"]),
            margin=plain.get("margin", 1.0),
        )
