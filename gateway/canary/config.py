"""The schema of a canary: two groups of backends, and how traffic moves between them."""

from enum import Enum
from typing import Annotated, Self

from pydantic import Field, model_validator

from gateway.schema import Count, Names, Schema, Seconds, Share, Shares


class Order(Enum):
    """What the operator wants of it now."""

    RUN = "run"
    PAUSE = "pause"
    ABORT = "abort"
    PROMOTE = "promote"


class CanaryConfig(Schema):
    """Source: "old and new side by side for at least 1 h, traffic shifted in steps, rollback"."""

    old: Annotated[Names, Field(min_length=1, description="backends of the old group, with commas")]
    new: Annotated[Names, Field(min_length=1, description="backends of the new group, with commas")]
    order: Annotated[
        Order,
        Field(
            description="run; pause: stay at the step; abort: all to old; promote: all to new, now"
        ),
    ] = Order.RUN
    run: Annotated[
        str, Field(max_length=64, description="any other word begins again at the first step")
    ] = ""
    steps: Annotated[Shares, Field(description="the new group's shares of the sessions")] = (
        *(0.01, 0.05, 0.25, 0.5, 1.0),
    )
    step_time: Annotated[Seconds, Field(description="least time at each step")] = 600.0
    side_by_side: Annotated[
        Seconds, Field(description="least time from the start to the last step")
    ] = 3600.0
    samples: Annotated[
        Count, Field(description="answers of the new group that each step needs at least")
    ] = 200
    ttft_margin: Annotated[
        float,
        Field(
            ge=0,
            le=10,
            description="a p99, p90 or median TTFT longer by more is worse",
        ),
    ] = 0.2
    error_margin: Annotated[
        Share, Field(description="an error rate higher by more than this is worse")
    ] = 0.01
    alpha: Annotated[
        float,
        Field(gt=0, lt=0.5, description="chance per step to call an equal group worse"),
    ] = 0.01
    shadow: Annotated[
        Share,
        Field(description="share of the old group's requests also sent to new, answers dropped"),
    ] = 0.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for group, names in (("old", self.old), ("new", self.new)):
            if len(set(names)) != len(names):
                raise ValueError(f"a backend is twice in {group}: name each once")
        if both := set(self.old) & set(self.new):
            raise ValueError(f"in both groups: {', '.join(sorted(both))}")
        if list(self.steps) != sorted(set(self.steps)):
            raise ValueError("steps must grow: 0.01, 0.05, 0.25, 0.5, 1")
        if self.steps[0] >= 1.0:
            raise ValueError("the first step must leave the old group something to compare with")
        return self
