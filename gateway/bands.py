"""Which channel a backend's prompts of a size go by, and how that was found out. Pure.

Ids spare vLLM the template and the encoding but cost it the reading of a long list of numbers;
which is less depends on how it is set up. So both are timed on the backend itself (`meter`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backends.types import Channel

MARGIN: Final = 0.97
"""Text is taken only where it needs less than this share of the time that ids need: ids also spare
vLLM's processor, and a smaller difference is noise.

It has to, of a request alone and of one among others. Waves by themselves decide nothing: text
comes out of vLLM's tokenizer one after the other, so that the first of a wave overtake (on two
cores text then looked quicker at 8,000 tokens, where ids alone take two thirds of its time)."""


class ChannelChoice(StrEnum):
    """What an operator says about the channel. Ids only ever go where they are proved."""

    AUTO = "auto"
    IDS = "ids"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Band:
    """Prompts of up to `up_to` tokens (None: of any length), and their channel.

    `ids` and `text` are the times to first token, in seconds, that decided; None: not measured.
    """

    up_to: int | None
    channel: Channel
    ids: float | None = None
    text: float | None = None


@dataclass(frozen=True, slots=True)
class Timed:
    """Median times to first token by both channels, in seconds, of so many requests at a time."""

    ids: float
    text: float

    @property
    def text_wins(self) -> bool:
        return self.text < self.ids * MARGIN


def decided(up_to: int | None, alone: Timed, among_others: Timed) -> Band:
    """The band's channel by what both took; the band tells what they took alone."""
    by_text = alone.text_wins and among_others.text_wins
    return Band(up_to, Channel.TEXT if by_text else Channel.IDS, alone.ids, alone.text)


def pinned(channel: Channel) -> tuple[Band, ...]:
    """One band for all prompts, without a measurement."""
    return (Band(None, channel),)


def channel_of(bands: Sequence[Band], tokens: int) -> Channel:
    """Where nothing was measured, ids."""
    for band in bands:
        if band.up_to is None or tokens <= band.up_to:
            return band.channel
    return Channel.IDS


def complete(bands: Sequence[Band]) -> tuple[Band, ...]:
    """The last measured band goes for all longer prompts: both costs grow in proportion."""
    if not bands:
        return pinned(Channel.IDS)
    last = bands[-1]
    return (*bands[:-1], Band(None, last.channel, last.ids, last.text))
