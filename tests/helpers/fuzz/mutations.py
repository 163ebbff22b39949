"""Changes to valid bytes, each given by integers that a random number generator or hypothesis may choose."""

from __future__ import annotations

from collections.abc import Sequence

# What a text, a number or a header may have in the wrong place.
SNIPPETS = (
    b"\0",
    b"\n",
    b"\r",
    b",",
    b";",
    b"\t",
    b'"',
    b"9" * 30,
    b"9" * 5000,
    b"nan",
    b"1e999",
    b"-",
    b"[",
    b"{}",
    b"null",
    b"\xff\xfe",
    b"\xed\xa0\x80",
)
KINDS = 7
Step = tuple[int, int, int, int]


def mutate(content: bytes, other: bytes, steps: Sequence[Step]) -> bytes:
    """Apply the steps (kind, place, second place, value) to `content`; `other` is what is spliced in.

    Any numbers will do.
    """
    held = bytearray(content)
    for kind, place, second, value in steps:
        size = len(held)
        at = place % (size + 1)
        match kind % KINDS:
            case 0 if at < size:
                held[at] ^= 1 << value % 8
            case 1 if at < size:
                held[at] = value % 256
            case 2:
                del held[at:]
            case 3:
                del held[at : at + 1 + value % 8]
            case 4:
                held[at:at] = SNIPPETS[value % len(SNIPPETS)]
            case 5:
                held[at:] = other[second % (len(other) + 1) :]
            case 6:
                start = second % (size + 1)
                held[at:at] = held[start : start + 1 + value % 40]
    return bytes(held)
