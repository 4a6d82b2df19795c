"""What the server has been told to do wrong, and for how many requests."""

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """One kind of failure. All but REFUSE leave `/health` and `/metrics` alone."""

    NONE = "none"
    REFUSE = "refuse"
    """Reset each connection as soon as a request came in."""
    BUSY = "busy"
    """503 without Retry-After, as a full vLLM queue."""
    HANG = "hang"
    """Take the request and never send the response's head."""
    HANG_AFTER_FIRST = "hang_after_first"
    """Send one token, then nothing."""
    RESET_MID_STREAM = "reset_mid_stream"
    """Reset the connection after two tokens."""
    SLOW_START = "slow_start"
    """Make the next engine step take `seconds` longer."""
    IGNORE_IDS = "ignore_ids"
    """Render a chat's messages although ids came with them, as vLLM's Rust frontend does."""
    REFUSE_IDS = "refuse_ids"
    """400 for a prompt that is token ids."""
    TRUNCATE_IDS = "truncate_ids"
    """Use only the first half of a chat's ids."""
    WRONG_TOKENIZER = "wrong_tokenizer"
    """Encode text to other ids than the tokenizer that `/v1/models` points at."""


@dataclass(slots=True)
class Faults:
    """The failure in force; `times` counts the requests that it will still hit (None: all)."""

    mode: Mode = Mode.NONE
    times: int | None = None

    def set(self, mode: Mode, times: int | None = None) -> None:
        self.mode = mode
        self.times = times

    def hit(self, mode: Mode) -> bool:
        """Whether this request meets that failure; counts as one of `times`."""
        if self.mode is not mode:
            return False
        if self.times is not None:
            self.times -= 1
            if self.times <= 0:
                self.set(Mode.NONE)
        return True
