"""The sub-commands of `forebay` besides `serve`: one module each, registered in `gateway.cli`."""
