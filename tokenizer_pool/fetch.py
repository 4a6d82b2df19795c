"""`python -m tokenizer_pool.fetch ID`: download a hub id's tokenizer files, print their folder.

In a process of its own, so that the gateway holds no download client. Weights are left alone.
"""

import sys


def main() -> None:
    """The command line: the hub id."""
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.jinja", "*.txt", "*.tiktoken", "tokenizer.model*"]
    print(snapshot_download(sys.argv[1], allow_patterns=patterns))  # noqa: T201 - our answer


if __name__ == "__main__":
    main()
