"""Time to first token of a real vLLM, asked directly and through Forebay, side by side."""
