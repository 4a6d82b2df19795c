"""The gateway: HTTP in, a shaped request out, the answer relayed byte for byte.

It drives the three packages beside it (`tokenizer_pool`, `scheduler`, `backends`), which never
import each other. `app` wires everything; `handlers` tells the story of a request.
"""

__version__ = "0.1.0"
