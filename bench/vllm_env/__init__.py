"""The environment of the real-vLLM tests: vLLM on the CPU and the two models it serves.

layout     where everything lies in the cache, named after what it is made from
build      makes what is missing (`python3 -m bench.vllm_env`), standard library only
serve      the command line and environment that start a vLLM server here
models     converts and makes the models; runs inside the vLLM environment
smollm2    the tokenizer out of the GGUF; runs inside the vLLM environment
"""
