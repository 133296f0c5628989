"""An encoder whose tokens stand for nothing: three for each file, between two of text."""

from dataclasses import dataclass, field

from localspec.errors import UsageError
from localspec.messages import MediaPart

PNG, WAV = b"\x89PNG\r\n\x1a\n", b"RIFF\x24\0\0\0WAVE"
BEGIN, END, COUNT = 101, 102, 3


def picture(number: int = 0) -> MediaPart:
    """Return a picture that nothing decodes; each number has its own."""
    return MediaPart("image", f"{number}.png", PNG + bytes([number]))


def sound(number: int = 0) -> MediaPart:
    return MediaPart("audio", f"{number}.wav", WAV + bytes([number]))


def damaged() -> MediaPart:
    return MediaPart("image", "0.png", b"damaged")


@dataclass
class ToyEncoder:
    """Takes what it is told to; a file that ends with "damaged" cannot be decoded."""

    sees: bool = True
    hears: bool = False
    read: list[str] = field(default_factory=list)
    owners: set[str] = field(default_factory=set)

    def tokens(self, part: MediaPart, owner: str = "") -> list[int]:
        if part.data.endswith(b"damaged"):
            raise UsageError(f"{part.name} is damaged: it cannot be decoded; give another file")
        self.read.append(part.name)
        self.owners.add(owner)
        first = -int(part.sha256[:6], 16) - 2
        return [BEGIN, *range(first, first - COUNT, -1), END]
