"""The server under load: where it is, which API is used, and the bytes of its requests."""

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

import orjson


class Api(StrEnum):
    CHAT = "chat"
    COMPLETIONS = "completions"


@dataclass(frozen=True, slots=True)
class Target:
    """`url` may end in `/v1`, as OpenAI's clients have it."""

    url: str
    model: str
    api: Api = Api.CHAT
    stream: bool = True
    ignore_eos: bool = True
    api_key: str | None = None

    @property
    def origin(self) -> str:
        """Scheme and host, which is what a connection needs."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def path(self) -> str:
        base = urlsplit(self.url).path.rstrip("/") or "/v1"
        return f"{base}/chat/completions" if self.api is Api.CHAT else f"{base}/completions"

    def body(self, parts: list[str], output_tokens: int) -> bytes:
        """A request whose prompt is the parts joined."""
        text = "".join(parts)
        document: dict[str, object] = {
            "model": self.model,
            "max_tokens": output_tokens,
            "temperature": 0,
            "stream": self.stream,
        }
        if self.stream:
            document["stream_options"] = {"include_usage": True}
        if self.ignore_eos:
            document["ignore_eos"] = True
        if self.api is Api.CHAT:
            document["messages"] = [{"role": "user", "content": text}]
        else:
            document["prompt"] = text
        return orjson.dumps(document)
