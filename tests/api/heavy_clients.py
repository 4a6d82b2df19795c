"""`python -m tests.api.heavy_clients`: LangChain's ChatOpenAI and LiteLLM as clients.

They pull in a hundred packages, so they get an environment of their own, outside the repository
and kept for the next time (`$FOREBAY_CACHE`, else the user's cache directory). What they must be
able to do is in CHECKS, which runs there; engine and gateway run here.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from gateway.settings import default_cache_dir
from tests.integration.parts import MODEL, running_engine, running_gateway

PACKAGES = ("langchain-openai==1.7.4", "litellm==1.110.2")

CHECKS = """
import os, sys
from importlib.metadata import version
url, model = sys.argv[1:3]
os.environ["OPENAI_API_KEY"] = "any"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from langchain_openai import ChatOpenAI, OpenAIEmbeddings
chat = ChatOpenAI(model=model, base_url=url + "/v1", max_tokens=6, temperature=0, max_retries=0)
whole = chat.invoke("What is a forebay?")
assert whole.content and whole.usage_metadata["output_tokens"] == 6, whole
pieces = [piece.content for piece in chat.stream("What is a forebay?")]
assert "".join(pieces) == whole.content and len(pieces) > 4, pieces
assert len(chat.batch(["one", "two", "three"])) == 3
tools = chat.bind_tools([{"name": "f", "description": "d", "parameters": {"type": "object"}}])
assert tools.invoke("Hi").usage_metadata["input_tokens"] > whole.usage_metadata["input_tokens"] - 10
responses = ChatOpenAI(model=model, base_url=url + "/v1", use_responses_api=True, max_retries=0)
assert responses.invoke("Hi", max_output_tokens=4).text
embeddings = OpenAIEmbeddings(model=model, base_url=url + "/v1", check_embedding_ctx_length=False)
assert len(embeddings.embed_documents(["one", "two"])) == 2
print("langchain-openai", version("langchain-openai"), "ok")

import litellm
litellm.telemetry = False
name, own = f"openai/{model}", {"api_base": url + "/v1", "api_key": "any", "num_retries": 0}
said = [{"role": "user", "content": "What is a forebay?"}]
whole = litellm.completion(name, messages=said, max_tokens=6, temperature=0, **own)
assert whole.usage.completion_tokens == 6, whole
stream = litellm.completion(name, messages=said, max_tokens=6, temperature=0, stream=True, **own)
text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
assert text == whole.choices[0].message.content, text
assert len(litellm.embedding(name, input=["one", "two"], **own).data) == 2
assert litellm.text_completion(model=name, prompt="Once", max_tokens=2, **own).choices[0].text
anthropic = {"api_base": url, "api_key": "any", "num_retries": 0}
answer = litellm.completion(f"anthropic/{model}", messages=said, max_tokens=6, **anthropic)
assert answer.choices[0].message.content, answer
try:
    litellm.completion("openai/gpt-99", messages=said, **own)
except litellm.NotFoundError:
    pass
else:
    raise AssertionError("an unknown model was answered")
print("litellm", version("litellm"), "ok")
"""


def environment() -> Path:
    """The Python of an environment with these packages; made the first time."""
    folder = default_cache_dir() / f"clients-{hash_of(PACKAGES)}"
    python = folder / "bin" / "python"
    stamp = folder / "complete"
    if not stamp.exists():
        print(f"building {folder} with {', '.join(PACKAGES)}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *PACKAGES], check=True)
        stamp.touch()
    return python


def hash_of(packages: tuple[str, ...]) -> str:
    return "-".join(p.replace("==", "-") for p in packages)


async def run(python: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="forebay-clients-") as folder:
        cache = Path(os.environ.get("FOREBAY_CACHE", folder))
        async with (
            running_engine() as engine,
            running_gateway(cache, backends={"only": {"url": engine.url}}) as gateway,
        ):
            checks = await asyncio.create_subprocess_exec(
                str(python), "-c", CHECKS, gateway.url, MODEL
            )
            return await checks.wait()


def main() -> None:
    sys.exit(asyncio.run(run(environment())))


if __name__ == "__main__":
    main()
