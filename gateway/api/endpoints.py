"""The table of endpoints: all that clients can ask, and how each request is dealt with.

A new one is a row here, and a counting function in `tokenizer_pool.shapes` if its prompt is to be
found. What vLLM offers beyond these rows is refused, with a reason for a person.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tokenizer_pool.types import Kind


class Means(Enum):
    """What is done with a request.

    SHAPED: counted, classified, admitted, relayed. PASSED: the same by a guess of its size, and
    its body need not be JSON. HELD: relayed from the backend that its path names. LOCAL: answered
    here, without an engine.
    """

    SHAPED = "shaped"
    PASSED = "passed"
    HELD = "held"
    LOCAL = "local"


class Style(Enum):
    """Whose errors the clients of an endpoint expect."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row. `{...}` in a path stands for a name, which has slashes in it only if `deep`.

    `generates`: the prompt must leave room for an answer in the context. `accepts` is the schema
    of its body (`schemas`), `says` what it answers in one line, for the document at /openapi.json.
    """

    method: str
    path: str
    means: Means
    summary: str
    kind: Kind = Kind.UNREAD
    generates: bool = False
    style: Style = Style.OPENAI
    accepts: str = ""
    multipart: bool = False
    deep: bool = False


def _shaped(path: str, kind: Kind, summary: str, accepts: str) -> Endpoint:
    return Endpoint("POST", path, Means.SHAPED, summary, kind, accepts=accepts)


def _generating(path: str, kind: Kind, summary: str, accepts: str) -> Endpoint:
    return Endpoint("POST", path, Means.SHAPED, summary, kind, generates=True, accepts=accepts)


def _passed(path: str, summary: str, accepts: str = "Any") -> Endpoint:
    return Endpoint("POST", path, Means.PASSED, summary, accepts=accepts)


def _form(path: str, summary: str) -> Endpoint:
    return Endpoint("POST", path, Means.PASSED, summary, accepts="Audio", multipart=True)


def _local(method: str, path: str, summary: str, accepts: str = "") -> Endpoint:
    return Endpoint(method, path, Means.LOCAL, summary, accepts=accepts)


ENDPOINTS: Final = (
    _generating("/v1/chat/completions", Kind.CHAT, "A chat", "Chat"),
    _generating("/v1/completions", Kind.COMPLETION, "Completions of prompts", "Completion"),
    _generating("/v1/responses", Kind.RESPONSES, "A response", "Response"),
    Endpoint("GET", "/v1/responses/{response_id}", Means.HELD, "A stored response"),
    Endpoint("POST", "/v1/responses/{response_id}/cancel", Means.HELD, "Stop a response"),
    Endpoint(
        "POST",
        "/v1/messages",
        Means.SHAPED,
        "Anthropic's chat",
        Kind.MESSAGES,
        generates=True,
        style=Style.ANTHROPIC,
        accepts="Messages",
    ),
    Endpoint(
        "POST",
        "/v1/messages/count_tokens",
        Means.LOCAL,
        "The prompt tokens of Anthropic's chat",
        Kind.MESSAGES,
        style=Style.ANTHROPIC,
        accepts="CountTokens",
    ),
    _shaped("/v1/embeddings", Kind.EMBEDDING, "Embeddings of texts", "Embedding"),
    _shaped("/v2/embed", Kind.UNREAD, "Embeddings, Cohere's", "Any"),
    _shaped("/pooling", Kind.EMBEDDING, "What the model's pooler makes of texts", "Embedding"),
    _shaped("/classify", Kind.EMBEDDING, "Classes of texts", "Embedding"),
    _shaped("/score", Kind.SCORE, "Scores of pairs of texts", "Score"),
    _shaped("/v1/score", Kind.SCORE, "Scores of pairs of texts", "Score"),
    _shaped("/rerank", Kind.SCORE, "Documents by their relevance to a query", "Rerank"),
    _shaped("/v1/rerank", Kind.SCORE, "Documents by their relevance to a query", "Rerank"),
    _shaped("/v2/rerank", Kind.SCORE, "Documents by their relevance to a query", "Rerank"),
    _form("/v1/audio/transcriptions", "The text of a recording"),
    _form("/v1/audio/translations", "The text of a recording, in English"),
    _passed("/v1/audio/speech", "A recording of a text"),
    _passed("/v1/images/generations", "Images from a text"),
    _passed("/v1/chat/completions/batch", "Several chats at once"),
    _passed("/cohere/v2/chat", "A chat, Cohere's"),
    _passed("/generative_scoring", "Scores by a generating model"),
    _passed("/v1/systemone", "Structured decisions"),
    _local("POST", "/tokenize", "The token ids of a prompt", "Tokenize"),
    _local("POST", "/detokenize", "The text of token ids", "Detokenize"),
    _local("GET", "/v1/models", "The models that engines serve"),
    Endpoint("GET", "/v1/models/{model}", Means.LOCAL, "One model", deep=True),
    _local("GET", "/health", "Whether this process lives"),
    _local("GET", "/ready", "Whether requests can be served, and what is known of the engines"),
    _local("GET", "/metrics", "Prometheus metrics"),
    _local("GET", "/openapi.json", "This document"),
)

_OPERATORS: Final = "it is for the engine's operator; ask the engine itself"
_DISAGGREGATED: Final = "it serves engines that share one prompt; ask the engine itself"
_OTHER_DOOR: Final = "it is another door to endpoints that are offered here"
_SOCKETS: Final = "it speaks WebSocket, which this gateway does not"

REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "/sleep",
            "/wake_up",
            "/is_sleeping",
            "/release_kv_cache_memory",
            "/collective_rpc",
            "/server_info",
            "/reset_prefix_cache",
            "/reset_mm_cache",
            "/reset_encoder_cache",
            "/pause",
            "/resume",
            "/is_paused",
            "/abort_requests",
            "/init_weight_transfer_engine",
            "/shutdown_weight_transfer_engine",
            "/start_weight_update",
            "/start_draft_weight_update",
            "/update_weights",
            "/finish_weight_update",
            "/update_weight_version",
            "/weight_info",
            "/weight_checker",
            "/get_world_size",
            "/start_profile",
            "/stop_profile",
            "/v1/load_lora_adapter",
            "/v1/unload_lora_adapter",
            "/scale_elastic_ep",
            "/is_scaling_elastic_ep",
            "/fault_tolerance/apply",
            "/fault_tolerance/status",
            "/tokenizer_info",
            "/kv_event_sources",
            "/load",
            "/version",
            "/docs",
            "/docs/oauth2-redirect",
            "/redoc",
        ),
        _OPERATORS,
    ),
    **dict.fromkeys(
        (
            "/inference/v1/generate",
            "/inference/v1/abort_requests",
            "/v1/chat/completions/render",
            "/v1/completions/render",
            "/v1/messages/render",
            "/v1/responses/render",
            "/cohere/v2/chat/render",
            "/v1/chat/completions/derender",
            "/v1/completions/derender",
        ),
        _DISAGGREGATED,
    ),
    **dict.fromkeys(("/invocations", "/ping"), _OTHER_DOOR),
    "/v1/realtime": _SOCKETS,
}
"""What vLLM 0.32 offers and clients of this gateway do not get, and why."""
